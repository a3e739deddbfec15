//! Writes manual pages.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io;
use std::path::Path;

/// Files of the balancer's service.
const FILES: [(&str, &str); 6] = [
    ("/etc/ipip-lb/NAME.toml", "The configuration of the service ipip-lb@NAME."),
    ("/etc/ipip-lb/NAME.env", "EAL_ARGS and OPTIONS, further arguments of that service."),
    ("/run/hotloop/ipip-lb@NAME.sock", "Its control socket: ipip-lb ctl --control PATH."),
    ("/usr/share/doc/ipip-lb/README.md", "How to begin, and a list of the other pages there."),
    ("/usr/share/doc/ipip-lb/reference/config.md", "Every key of the configuration."),
    ("/usr/share/doc/ipip-lb/balancer/packets.md", "Every packet rule with its RFC."),
];

/// Exit codes of programs that carry packets.
const EXIT_CODES: [(&str, &str); 4] = [
    ("0", "Success; every packet is accounted for."),
    ("1", "The run failed, or packets are not accounted for. ctl: the program refused."),
    ("2", "An argument, the configuration or a device is wrong. ctl: no program answers."),
    ("3", "A worker was stuck: it used too much CPU time without passing a burst boundary."),
];

/// Exit codes of hotloop-top.
const TOP_EXIT_CODES: [(&str, &str); 3] = [
    ("0", "A key or a signal ended it."),
    ("1", "The terminal can't be used."),
    ("2", "An argument is wrong, or standard output is no terminal."),
];

/// Exit codes of hotloop-doctor.
const DOCTOR_EXIT_CODES: [(&str, &str); 5] = [
    ("0", "Nothing was found. Files that can't be read count as unknown."),
    ("1", "The doctor itself failed."),
    ("2", "An argument is wrong."),
    ("3", "Something costs speed."),
    ("4", "Something costs safety."),
];

/// Writes the page of a program and those of its commands into a folder.
pub fn write(program: &Command, folder: &Path) -> io::Result<()> {
    let mut program = program.clone().disable_help_subcommand(true);
    // Sets the full names of commands.
    program.build();
    write_one(&program, true, folder)
}

fn write_one(command: &Command, is_program: bool, folder: &Path) -> io::Result<()> {
    let notes = command.get_after_help().map(ToString::to_string);
    // The pages of commands have the version of their program.
    let man = Man::new(command.clone().after_help(None::<&str>)).manual("hotloop");
    let mut page = Vec::new();
    man.render(&mut page)?;
    if let Some(notes) = notes {
        as_written("NOTES", &notes).to_writer(&mut page)?;
    }
    if is_program {
        if command.get_name() == "ipip-lb" {
            list("FILES", &FILES).to_writer(&mut page)?;
        }
        let codes = match command.get_name() {
            "hotloop-top" => &TOP_EXIT_CODES[..],
            "hotloop-doctor" => &DOCTOR_EXIT_CODES,
            _ => &EXIT_CODES,
        };
        list("EXIT STATUS", codes).to_writer(&mut page)?;
    }
    fs::write(folder.join(man.get_filename()), page)?;
    let commands = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    commands.into_iter().try_for_each(|inner| write_one(inner, false, folder))
}

/// A section whose lines stay as they are.
fn as_written(heading: &str, text: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]).control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff
}

/// A section of terms, each with a sentence.
fn list(heading: &str, entries: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (term, text) in entries {
        roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
    }
    roff
}
