//! The picture of `cudele top`.

use cudele::{MdsState, Policy};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use types::quote::{printable, quoted};

use super::rates::{History, LEVELS, RATES, Server};

/// The parts of the picture that are not from the cluster.
#[derive(Debug)]
pub(super) struct Mode<'a> {
    /// Seconds.
    pub(super) interval: f64,
    pub(super) is_paused: bool,
    /// The error of the newest look.
    pub(super) fault: Option<&'a str>,
}

/// The columns of [`RATES`] and [`LEVELS`].
const HEADS: [&str; RATES.len() + LEVELS.len()] =
    ["REQ/s", "AHEAD/s", "CHG/s", "MERGE/s", "FWD/s", "BYTES/s", "INODES", "SESS", "OPENS"];
/// Lines of findings at most.
const FINDINGS_MAX: usize = 6;

pub(super) fn draw(frame: &mut Frame<'_>, history: &History, mode: &Mode<'_>) {
    let servers = history.servers();
    let findings = history.now().findings();
    let shown = findings.len().min(FINDINGS_MAX);
    let height = |rows: usize| Constraint::Length(u16::try_from(rows).unwrap_or(u16::MAX));
    let [head, warned, curve, ranks, subtrees] = Layout::vertical([
        Constraint::Length(1),
        height(shown),
        Constraint::Length(6),
        height(servers.len().max(1) + 2),
        Constraint::Min(3),
    ])
    .areas(frame.area());
    draw_head(frame, head, history, mode);
    let lines = findings.iter().take(shown).map(|finding| {
        let color = if mon::is_error(&finding.code) { Color::Red } else { Color::Yellow };
        let text = printable(&finding.text).into_owned();
        Line::from(vec![
            Span::styled(finding.code.clone(), Style::new().fg(color).bold()),
            Span::raw(format!("  {text}")),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), warned);
    draw_curve(frame, curve, history);
    draw_ranks(frame, ranks, &servers);
    draw_subtrees(frame, subtrees, history);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, history: &History, mode: &Mode<'_>) {
    let map = &history.now().map;
    let health = match history.now().findings().len() {
        0 => Span::styled("healthy", Style::new().fg(Color::Green)),
        count => Span::styled(format!("{count} findings"), Style::new().fg(Color::Yellow)),
    };
    let state = match (mode.fault, mode.is_paused) {
        (Some(fault), _) => {
            Span::styled(printable(fault).into_owned(), Style::new().fg(Color::Red))
        }
        (None, true) => Span::styled("paused", Style::new().reversed()),
        (None, false) => Span::raw(format!("every {} s", mode.interval)),
    };
    let short = map.cluster.split('-').next().unwrap_or("").to_owned();
    let line = Line::from(vec![
        Span::styled("cudele ", Style::new().bold()),
        Span::raw(format!("{short}  map {}  ", map.epoch)),
        health,
        Span::raw("  "),
        state,
        Span::styled("  q ends, p pauses, + - interval", Style::new().dim()),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_curve(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let data = history.curve(usize::from(area.width.saturating_sub(2)));
    let (newest, most) =
        (data.last().copied().unwrap_or(0), data.iter().max().copied().unwrap_or(0));
    let title = format!(
        " operations per second: {} (most {}) ",
        scaled(newest as f64),
        scaled(most as f64)
    );
    let curve = Sparkline::default().block(Block::bordered().title(title)).data(&data);
    frame.render_widget(curve.style(Style::new().fg(Color::Cyan)), area);
}

fn draw_ranks(frame: &mut Frame<'_>, area: Rect, servers: &[Server]) {
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let heads = HEADS.into_iter().map(str::to_owned);
    let head = ["RANK".into(), "STATE".into()].into_iter().chain(heads.map(right));
    let rows = servers.iter().map(|server| {
        let color = match server.state {
            MdsState::Active => Color::Green,
            MdsState::Replaying | MdsState::Stopping => Color::Yellow,
            MdsState::Lost => Color::Red,
        };
        let state = Cell::from(server.state.word()).style(Style::new().fg(color));
        let rates = (0..RATES.len())
            .map(|at| server.rates.map_or_else(|| "-".to_owned(), |rates| scaled(rates[at])));
        #[allow(clippy::cast_precision_loss, reason = "it is shown to three digits")]
        let levels = server.levels.iter().map(|level| scaled(*level as f64));
        let name = Cell::from(server.rank.to_string());
        Row::new([name, state].into_iter().chain(rates.chain(levels).map(right)))
    });
    let widths = [6, 9].into_iter().chain([7; RATES.len()]).chain([6; LEVELS.len()]);
    let table = Table::new(rows, widths.map(Constraint::Length).collect::<Vec<_>>());
    let table = table.header(Row::new(head.collect::<Vec<_>>()).style(Style::new().bold()));
    frame.render_widget(table.column_spacing(1), area);
}

fn draw_subtrees(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let decoupled = &history.now().map.decoupled;
    let rows = decoupled.iter().map(|subtree| {
        let cell = Policy::parse(&subtree.policy).ok().and_then(|parsed| parsed.policy.cell());
        let promise = cell.map_or_else(|| "no single promise".to_owned(), |cell| cell.to_string());
        Row::new([quoted(&subtree.path).into_owned(), subtree.client.to_string(), promise])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(16), Constraint::Length(28)];
    let title = format!(" decoupled subtrees: {} ", decoupled.len());
    let table = Table::new(rows, widths).block(Block::bordered().title(title));
    let head = Row::new(["PATH", "CLIENT", "PROMISE"]).style(Style::new().bold());
    frame.render_widget(table.header(head), area);
}

/// A number with three digits and a unit.
fn scaled(number: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let unit = units.into_iter().find(|(size, _)| number >= *size);
    let (number, unit) = unit.map_or((number, ""), |(size, unit)| (number / size, unit));
    match number {
        _ if number >= 100.0 || (unit.is_empty() && number.fract() < 0.05) => {
            format!("{number:.0}{unit}")
        }
        _ if number >= 10.0 => format!("{number:.1}{unit}"),
        _ => format!("{number:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use expect_test::expect;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::rates::Sample;
    use super::super::rates::tests::map;
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.0, 7.0, 7.25, 99.96, 1234.0, 56_789.0, 999_999.0, 2.5e6, 3e9];
        let shown: Vec<_> = numbers.into_iter().map(scaled).collect();
        assert_eq!(shown, ["0", "7", "7.25", "100.0", "1.23k", "56.8k", "1000k", "2.50M", "3.00G"]);
    }

    #[test]
    fn the_picture_has_ranks_subtrees_and_no_commands_to_the_terminal() {
        let start = Instant::now();
        let mut history = History::new(Sample::new(start, map(&[&[], &[]], 1)));
        let counters: &[(&str, u64)] =
            &[("requests", 56_789), ("ahead", 1_000_000), ("inodes", 1234), ("sessions", 3)];
        let next = map(&[counters, &[("requests", 7)]], 1);
        history.push(Sample::new(start + Duration::from_secs(1), next));
        let mut terminal = Terminal::new(TestBackend::new(84, 16)).unwrap();
        let mode = Mode { interval: 1.0, is_paused: false, fault: None };
        terminal.draw(|frame| draw(frame, &history, &mode)).unwrap();
        expect![[r#"
            "cudele   map e0  healthy  every 1 s  q ends, p pauses, + - interval                 "
            "┌ operations per second: 1.06M (most 1.06M) ───────────────────────────────────────┐"
            "│█                                                                                 │"
            "│█                                                                                 │"
            "│█                                                                                 │"
            "│█                                                                                 │"
            "└──────────────────────────────────────────────────────────────────────────────────┘"
            "RANK   STATE      REQ/s AHEAD/s   CHG/s MERGE/s   FWD/s BYTES/s INODES   SESS  OPENS"
            "mds.0  active     56.8k   1.00M       0       0       0       0  1.23k      3      0"
            "mds.1  active         7       0       0       0       0       0      0      0      0"
            "                                                                                    "
            "┌ decoupled subtrees: 1 ───────────────────────────────────────────────────────────┐"
            "│PATH                                 CLIENT           PROMISE                     │"
            "│'/job'$'\033''[2J'                   client.0         weak-none                   │"
            "│                                                                                  │"
            "└──────────────────────────────────────────────────────────────────────────────────┘"
        "#]]
        .assert_eq(&terminal.backend().to_string());
        // The smallest terminals show what they can.
        for (width, height) in [(1, 1), (20, 5), (300, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &history, &mode)).unwrap();
        }
    }
}
