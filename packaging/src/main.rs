//! Writes the manual pages and shell completions of the packaged programs, from the programs' own
//! definitions of their arguments.
//!
//! `hotloop-packaging FOLDER` writes `FOLDER/man/NAME.1`, a page for each program and each of its
//! commands, and `FOLDER/completions/{bash,zsh,fish}`. It is a separate program so that the
//! packaged ones need not contain this code.

#![forbid(unsafe_code)]

mod pages;

use clap::{Command, CommandFactory, Parser};
use clap_complete::{Shell, generate_to};
use hotloop_ops::{Failure, NoCommand, ctl_command};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The shells, with the folder of each.
const SHELLS: [(Shell, &str); 3] =
    [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")];

/// Writes manual pages and shell completions of the packaged programs.
#[derive(Parser)]
#[command(name = "hotloop-packaging")]
struct Cli {
    /// The folder for the files, created if missing.
    folder: PathBuf,
}

fn main() -> ExitCode {
    hotloop_ops::main("hotloop-packaging", |cli: Cli| {
        write(&cli.folder)
            .map_err(|error| Failure::Run(format!("{}: {error}", cli.folder.display())))
    })
}

/// The packaged programs, with their commands. A new one needs a line here, and its assets in the
/// manifest of its package: that of ipip-lb or of hotloop-top.
fn programs() -> [Command; 6] {
    let with_ctl = |program: Command| program.subcommand(ctl_command::<NoCommand>());
    [
        ipip_lb::cli::Cli::command(),
        with_ctl(ipip_endpoint::cli::Cli::command()),
        with_ctl(udp::sink::cli::Cli::command()),
        with_ctl(udp::source::cli::Cli::command()),
        hotloop_top::command(),
        hotloop_doctor::command(),
    ]
}

fn write(folder: &Path) -> io::Result<()> {
    let pages = folder.join("man");
    // An earlier run may have left the page of a command that is gone.
    if pages.exists() {
        fs::remove_dir_all(&pages)?;
    }
    fs::create_dir_all(&pages)?;
    for mut program in programs() {
        pages::write(&program, &pages)?;
        let name = program.get_name().to_owned();
        for (shell, shell_folder) in SHELLS {
            let completions = folder.join("completions").join(shell_folder);
            fs::create_dir_all(&completions)?;
            let file = generate_to(shell, &mut program, &name, &completions)?;
            if shell == Shell::Bash {
                fs::write(&file, of_one_name(&fs::read_to_string(&file)?, &name))?;
            }
        }
    }
    Ok(())
}

/// clap_complete 4.6 writes the dash of a program's name in two ways, so that bash never finds the
/// case of a command.
fn of_one_name(completions: &str, name: &str) -> String {
    completions.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"))
}
