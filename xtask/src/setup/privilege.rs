//! Whether this process may install packages, and how.

use std::io::IsTerminal;
use std::process::Command;

use crate::process;

/// How to run a command that needs root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// As it is: this is root.
    Root,
    /// Through sudo, which may ask for a password where somebody can type it.
    Sudo,
    /// Not at all.
    None,
}

impl Privilege {
    /// What this process has.
    pub fn of_this_process() -> Self {
        if rustix::process::geteuid().is_root() {
            return Self::Root;
        }
        if process::find_program("sudo").is_none() {
            return Self::None;
        }
        let without_password =
            process::quiet_output(Command::new("sudo").args(["-n", "true"])).is_some();
        if without_password || std::io::stdin().is_terminal() { Self::Sudo } else { Self::None }
    }

    /// The words of a command, with `sudo` before them where it takes that.
    pub fn with(self, words: &[String]) -> Vec<String> {
        let sudo = (self == Self::Sudo).then(|| "sudo".to_owned());
        sudo.into_iter().chain(words.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_comes_first_and_only_where_it_must() {
        let words = ["apt-get".to_owned(), "update".to_owned()];
        assert_eq!(Privilege::Root.with(&words), ["apt-get", "update"]);
        assert_eq!(Privilege::Sudo.with(&words), ["sudo", "apt-get", "update"]);
    }
}
