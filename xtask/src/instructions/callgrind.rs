//! One run of a program under callgrind.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::process;

/// The instructions that the program takes, start and end included, when it calls `case` so often.
pub fn count(program: &Path, case: &str, call_count: u64) -> Result<u64, Failure> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([case, &call_count.to_string()])
        .stdin(Stdio::null())
        // Where the stack begins depends on how much stands in the environment.
        .env_clear();
    for name in ["PATH", "LD_LIBRARY_PATH", "VALGRIND_LIB"] {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
    let output = command.output().map_err(|error| process::not_started(&command, &error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    collected(&said).filter(|_| output.status.success()).ok_or_else(|| {
        Failure::failed(format!("`{}`: {}\n{said}", process::line(&command), output.status))
    })
}

/// Reads `==4711== Collected : 133743`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.starts_with("==") && line.contains("Collected"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read() {
        let said = "==7== Callgrind, a call-graph generating cache profiler\n==7== \n\
                    ==7== Events    : Ir\n==7== Collected : 133743\n==7== \n";
        assert_eq!(collected(said), Some(133_743));
        assert_eq!(collected("==7== Process terminating\n"), None);
    }
}
