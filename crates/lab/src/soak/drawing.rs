//! The drawing of a run: a panel for each figure over the time, with the episodes marked.
//!
//! Invariant: all panels have the same scale of time.

use super::records::{Episode, RunSettings, Sample};
use super::report::{Figure, descriptors, memory_mib};
use crate::experiment::axis::{Scale, short};
use crate::experiment::scene::{Anchor, Ink, Mark, Scene, Spot, spot};
use crate::harness::stats::real;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 40.0;
/// A panel with its title, and without.
const PITCH: f64 = 132.0;
const HEIGHT: f64 = 92.0;
/// A line of the list of episodes.
const LINE: f64 = 16.0;
/// Episodes that have a number in the drawing; a day has hundreds.
const NUMBERED: usize = 60;
/// Points of a line: more are not seen.
const POINTS: usize = 900;

struct PanelOf {
    title: &'static str,
    /// Whether the scale is logarithmic.
    log: bool,
    lines: Vec<Figure>,
}

fn panels() -> Vec<PanelOf> {
    let panel = |title, log, lines| PanelOf { title, log, lines };
    let memory: Vec<Figure> = vec![
        ("daemon", |sample| memory_mib(sample, true)),
        ("client", |sample| memory_mib(sample, false)),
    ];
    let answers: Vec<Figure> =
        vec![("probe", |sample| sample.stall_ms), ("machine", |sample| sample.machine_ms)];
    vec![
        panel("resident memory of the largest process, MiB", false, memory),
        panel("open descriptors of one process", false, vec![("", descriptors)]),
        panel("objects in the store", false, vec![("", |sample| real(sample.objects))]),
        panel("segments of all journals", false, vec![("", |sample| real(sample.segments))]),
        panel("slowest answer in a second, ms", true, answers),
    ]
}

/// Draws a run; `None` without samples.
pub(super) fn scene(
    settings: &RunSettings,
    samples: &[Sample],
    episodes: &[Episode],
) -> Option<Scene> {
    let end = samples.last()?.seconds.max(1.0);
    let panels = panels();
    let below = TOP + real(panels.len() as u64) * PITCH;
    let listed = episodes.len().min(NUMBERED);
    let height = below + 24.0 + LINE * real(listed.div_ceil(3) as u64);
    let title =
        format!("soak with seed {}: {end:.0} s, {} episodes", settings.seed, episodes.len());
    let mut scene = Scene { width: WIDTH, height, marks: Vec::new(), description: title.clone() };
    scene.bold(spot(14.0, 22.0), &title);
    let time = Scale::of([0.0, end].into_iter(), false, LEFT, RIGHT);
    for (at, panel) in panels.iter().enumerate() {
        let top = TOP + real(at as u64) * PITCH + 24.0;
        draw(&mut scene, panel, samples, episodes, (&time, top));
    }
    times(&mut scene, &time, below);
    list(&mut scene, &episodes[..listed], below + 24.0);
    Some(scene)
}

fn draw(
    scene: &mut Scene,
    panel: &PanelOf,
    samples: &[Sample],
    episodes: &[Episode],
    (time, top): (&Scale, f64),
) {
    let bottom = top + HEIGHT;
    scene.text(spot(LEFT, top - 8.0), panel.title, Ink::Text, Anchor::Start);
    for (at, (name, _)) in panel.lines.iter().enumerate() {
        let x = RIGHT - real(at as u64) * 80.0;
        scene.text(spot(x, top - 8.0), name, Ink::Series(at), Anchor::End);
    }
    let values = panel.lines.iter().flat_map(|(_, figure)| samples.iter().map(figure));
    let scale = Scale::of(values, panel.log, bottom, top);
    for mark in scale.marks() {
        let Some(y) = scale.place(mark) else { continue };
        scene.line(spot(LEFT, y), spot(RIGHT, y), Ink::Grid, 1.0);
        scene.text(spot(LEFT - 6.0, y + 4.0), &short(mark), Ink::Muted, Anchor::End);
    }
    for (at, episode) in episodes.iter().enumerate() {
        let Some(x) = time.place(episode.begin_seconds) else { continue };
        scene.line(spot(x, top), spot(x, bottom), Ink::Grid, 1.0);
        let Some(end) = time.place(episode.end_seconds + episode.heal_seconds) else { continue };
        // The span of the episode lies on the upper edge.
        scene.line(spot(x, top), spot(end.max(x + 1.0), top), Ink::Muted, 3.0);
        if at < NUMBERED && episodes.len() <= NUMBERED {
            scene.text(spot(x + 2.0, top + 12.0), &at.to_string(), Ink::Muted, Anchor::Start);
        }
    }
    for (at, (_, figure)) in panel.lines.iter().enumerate() {
        let place = |sample: &Sample| {
            Some(Spot { x: time.place(sample.seconds)?, y: scale.place(figure(sample))? })
        };
        let places = thinned(samples, *figure).into_iter().filter_map(place).collect();
        let ink = Ink::Series(at);
        scene.marks.push(Mark::Line { places, ink, width: 1.8, dashed: false });
    }
}

/// The largest sample of each part of the time.
fn thinned(samples: &[Sample], figure: fn(&Sample) -> f64) -> Vec<&Sample> {
    let size = samples.len().div_ceil(POINTS).max(1);
    let most = |part: &'_ [Sample]| -> usize {
        let mut best = 0;
        for (at, sample) in part.iter().enumerate() {
            if figure(sample) > figure(&part[best]) {
                best = at;
            }
        }
        best
    };
    samples.chunks(size).map(|part| &part[most(part)]).collect()
}

fn times(scene: &mut Scene, time: &Scale, y: f64) {
    for mark in time.marks() {
        if let Some(x) = time.place(mark) {
            scene.text(spot(x, y), &format!("{} s", short(mark)), Ink::Muted, Anchor::Middle);
        }
    }
}

fn list(scene: &mut Scene, episodes: &[Episode], top: f64) {
    for (at, episode) in episodes.iter().enumerate() {
        let (row, column) = (at / 3, at % 3);
        let place = spot(14.0 + 312.0 * real(column as u64), top + LINE * real(row as u64));
        let text = format!("{at} {}", episode.incident.name());
        scene.text(place, &text, Ink::Muted, Anchor::Start);
    }
}
