//! BIRD, with one BGP session.

use hotloop_tests::tool;
use std::fs;
use std::process::{Child, Stdio};
use tempfile::TempDir;

/// A BIRD in the network of the thread that started it.
pub struct Bird {
    child: Child,
    folder: TempDir,
}

impl Bird {
    /// Starts BIRD with its own and its neighbour's number and address, and with options of the
    /// session.
    pub fn start(own: (u32, &str), neighbour: (u32, &str), options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ((own_as, own), (neighbour_as, neighbour)) = (own, neighbour);
        let config = format!(
            "router id {own};\n\
             timeformat protocol \"%s.%3f\";\n\
             protocol device {{}}\n\
             protocol bgp edge {{\n\
             local {own} as {own_as};\n\
             neighbor {neighbour} as {neighbour_as};\n\
             {options}\n\
             connect delay time 1; connect retry time 1; error wait time 1, 2;\n\
             ipv4 {{ import all; export all; }};\n\
             }}\n"
        );
        fs::write(folder.path().join("bird.conf"), config).unwrap();
        let child = tool("bird")
            .unwrap()
            .current_dir(folder.path())
            .args(["-f", "-c", "bird.conf", "-s", "bird.ctl"])
            .stderr(Stdio::null())
            .spawn();
        let bird = Self { child: child.unwrap(), folder };
        hotloop_tests::wait_until("bird answers", || bird.session().is_some());
        bird
    }

    /// When the session was established, in seconds; `None` if it is not.
    ///
    /// BIRD uses another clock, and reports the same moment a little differently each time.
    pub fn established_s(&self) -> Option<f64> {
        let line = self.session()?;
        let mut words = line.split_whitespace();
        // Its name, protocol, table and state.
        let since = words.nth(4)?.parse().ok();
        since.filter(|_| words.next() == Some("Established"))
    }

    /// BIRD's output about the session; `None` while it starts.
    fn session(&self) -> Option<String> {
        let mut ask = tool("birdc").unwrap();
        ask.current_dir(self.folder.path());
        let output = ask.args(["-r", "-s", "bird.ctl", "show", "protocols"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|line| line.starts_with("edge")).map(str::to_owned)
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
