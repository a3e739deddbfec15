//! Draws the screen and handles keys.

use super::programs::{Round, Sample};
use super::rates::Rates;
use super::sections::{SECTIONS, Section, summary};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use std::path::{Path, PathBuf};

/// The state of the screen.
#[derive(Debug, Default)]
pub struct Screen {
    programs: Vec<PathBuf>,
    program: Option<PathBuf>,
    now: Option<Sample>,
    before: Option<Sample>,
    problem: Option<String>,
    /// The only section shown, if one was chosen.
    only: Option<Section>,
    /// Number of lines scrolled away.
    scrolled: u16,
    /// Number of lines that don't fit on the screen.
    scroll_max: u16,
    is_held: bool,
}

/// The effect of a key.
#[derive(Debug, Eq, PartialEq)]
pub enum Wish {
    /// Only a new drawing.
    None,
    /// Ends the program.
    Quit,
    /// Shows another program.
    Show(PathBuf),
}

impl Screen {
    /// Stores the result of a round.
    pub fn take(&mut self, round: Round) {
        if self.is_held && self.program == round.program {
            return;
        }
        self.programs = round.programs;
        if self.program != round.program {
            (self.now, self.before, self.scrolled) = (None, None, 0);
            self.program = round.program;
        }
        match round.sample {
            Some(Ok(sample)) => {
                self.before = self.now.replace(sample);
                self.problem = None;
            }
            Some(Err(problem)) => self.problem = Some(problem),
            None => self.problem = None,
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent) -> Wish {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Wish::Quit;
            }
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
            KeyCode::Right | KeyCode::Tab => return self.other(1),
            KeyCode::Left | KeyCode::BackTab => return self.other(-1),
            KeyCode::Up => self.scroll(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::Char(' ') => self.is_held = !self.is_held,
            KeyCode::Char('a') => (self.only, self.scrolled) = (None, 0),
            KeyCode::Char(letter) => {
                if let Some(section) = SECTIONS.iter().find(|section| section.key == letter) {
                    (self.only, self.scrolled) = (Some(*section), 0);
                }
            }
            _ => {}
        }
        Wish::None
    }

    fn scroll(&mut self, lines: i16) {
        self.scrolled = self.scrolled.saturating_add_signed(lines).min(self.scroll_max);
    }

    /// The program `step` places further on in the list.
    fn other(&self, step: isize) -> Wish {
        let count = self.programs.len();
        let here = self
            .program
            .as_ref()
            .and_then(|shown| self.programs.iter().position(|path| path == shown));
        let next = here.map(|here| (here + count).saturating_add_signed(step) % count);
        match next.filter(|next| Some(*next) != here) {
            Some(next) => Wish::Show(self.programs[next].clone()),
            None => Wish::None,
        }
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(rows).areas(frame.area());
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(self.list()).style(reversed), head);
        let lines = self.lines();
        let line_count = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        self.scroll_max = line_count.saturating_sub(body.height);
        self.scrolled = self.scrolled.min(self.scroll_max);
        frame.render_widget(Paragraph::new(lines).scroll((self.scrolled, 0)), body);
        frame.render_widget(Paragraph::new(self.keys()).style(reversed), foot);
    }

    /// The programs, with the displayed one in brackets.
    fn list(&self) -> Line<'static> {
        let names = self.programs.iter().map(|path| {
            let is_shown = self.program.as_ref() == Some(path);
            if is_shown { format!("[{}]", name(path)) } else { format!(" {} ", name(path)) }
        });
        let names: Vec<_> = names.collect();
        Line::from(format!("hotloop-top  {}", names.join(" ")))
    }

    fn keys(&self) -> Line<'static> {
        let sections = SECTIONS.iter().map(|section| {
            let is_shown = self.only.is_some_and(|only| only.key == section.key);
            format!("{}{}", if is_shown { "*" } else { "" }, section.name)
        });
        let sections: Vec<_> = sections.collect();
        let held = if self.is_held { "HELD " } else { "" };
        Line::from(format!(
            "{held}{} a:all \u{2190}\u{2192}:program \u{2191}\u{2193} space q",
            sections.join(" ")
        ))
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if let Some(problem) = &self.problem {
            lines.push(Line::styled(problem.clone(), bold));
        }
        if self.program.is_none() {
            lines.push(Line::from(
                "No program built on hotloop runs here, or its control socket is",
            ));
            lines.push(Line::from("elsewhere: give its path with --control PATH."));
        }
        let Some(now) = &self.now else { return lines };
        let rates = Rates::new(now, self.before.as_ref());
        lines.extend(summary(&rates).map(Line::from));
        for section in SECTIONS {
            if self.only.is_some_and(|only| only.key != section.key) {
                continue;
            }
            let table = (section.table)(&rates);
            if table.is_empty() && self.only.is_none() {
                continue;
            }
            lines.push(Line::default());
            let text = table.to_string();
            let mut rows = text.lines().map(str::to_owned);
            lines.extend(rows.next().map(|heads| Line::styled(heads, bold)));
            lines.extend(rows.map(Line::from));
        }
        lines
    }
}

/// A program's name in the list: that of its socket.
fn name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or(path.as_os_str());
    name.to_string_lossy().escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn round(program: usize, sample: Option<Result<Sample, String>>) -> Round {
        let programs = ["/run/hotloop/a.sock", "/run/hotloop/b.sock"].map(PathBuf::from).to_vec();
        Round { program: programs.get(program).cloned(), programs, sample }
    }

    fn sample(at: Instant, count: u64) -> Option<Result<Sample, String>> {
        let places: Vec<_> = (0..30)
            .map(|index| {
                json!({"core": "core 0", "name": format!("stage {index}"), "place": "stage",
                "received": count, "emitted": count, "held": 0, "dropped": {"odd": count}})
            })
            .collect();
        let status = json!({"program": "nf", "process": 7, "uptime_s": 1.0, "cores": [{"core": "core 0",
            "cpu": 1, "received": count, "crossed": 0, "sent": count, "dropped": 0}]});
        let counters = json!({"received": count, "created": 0, "sent": count, "dropped": {"odd": count},
            "places": places});
        Some(Ok(Sample { at, status, counters }))
    }

    /// The lines of a screen of 80 by 24.
    fn drawn(screen: &mut Screen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(80);
        let row = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect();
        rows.map(row).map(|row: String| row.trim_end().to_owned()).collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Wish {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn rates_are_shown_by_section_and_scrolled() {
        let (mut screen, start) = (Screen::default(), Instant::now());
        screen.take(round(0, sample(start, 0)));
        assert!(drawn(&mut screen)[2].starts_with("- received/s"));
        screen.take(round(0, sample(start + Duration::from_secs(2), 9000)));
        let lines = drawn(&mut screen);
        assert_eq!((lines.len(), lines[0].as_str()), (24, "hotloop-top  [a]  b"));
        assert_eq!(lines[2], "4500 received/s, 0 created/s, 4500 sent/s, 4500 dropped/s");
        assert!(lines[5].starts_with("core 0    1        4500          0    4500"), "{lines:#?}");
        assert!(lines[23].ends_with("space q") && lines[23].contains("drops"), "{lines:#?}");

        press(&mut screen, KeyCode::Char('d'));
        let lines = drawn(&mut screen);
        assert!(lines[4].starts_with("stage ") && lines[5].contains("odd"), "{lines:#?}");
        (0..100).for_each(|_| drop(press(&mut screen, KeyCode::PageDown)));
        assert!(drawn(&mut screen)[22].starts_with("stage 29"), "{:#?}", drawn(&mut screen));
        (0..100).for_each(|_| drop(press(&mut screen, KeyCode::Up)));
        assert!(drawn(&mut screen)[1].starts_with("nf, process 7"));
        press(&mut screen, KeyCode::Char('r'));
        assert!(drawn(&mut screen)[4].starts_with("core  rings"));
        press(&mut screen, KeyCode::Char('a'));
        assert!(drawn(&mut screen)[4].starts_with("core    cpu"));
    }

    #[test]
    fn keys_choose_a_program_hold_the_picture_and_end() {
        let (mut screen, start) = (Screen::default(), Instant::now());
        assert_eq!(press(&mut screen, KeyCode::Right), Wish::None);
        screen.take(Round { programs: Vec::new(), program: None, sample: None });
        assert!(drawn(&mut screen)[1].starts_with("No program"));
        screen.take(round(0, sample(start, 5)));
        let other = Wish::Show(PathBuf::from("/run/hotloop/b.sock"));
        assert_eq!(press(&mut screen, KeyCode::Right), other);
        assert_eq!(press(&mut screen, KeyCode::Left), other);
        screen.take(round(1, Some(Err("b is stuck".to_owned()))));
        let lines = drawn(&mut screen);
        assert!(lines[0].ends_with("a  [b]") && lines[1] == "b is stuck", "{lines:#?}");
        screen.take(round(1, sample(start, 5)));
        press(&mut screen, KeyCode::Char(' '));
        screen.take(round(1, sample(start + Duration::from_secs(1), 5)));
        let lines = drawn(&mut screen);
        assert!(
            lines[2].starts_with("- received/s") && lines[23].starts_with("HELD"),
            "{lines:#?}"
        );
        assert_eq!(press(&mut screen, KeyCode::Char('x')), Wish::None);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(
            (press(&mut screen, KeyCode::Esc), screen.press(control_c)),
            (Wish::Quit, Wish::Quit)
        );
    }
}
