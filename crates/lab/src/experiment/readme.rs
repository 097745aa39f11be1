//! The page of one experiment, for readers of the folder.

use std::fmt::Write as _;

use super::figure::{Figure, Plot};

/// In Markdown.
pub(crate) fn text(figure: &Figure<'_>) -> String {
    let about = figure.description;
    let mut out = format!("# {} · {}\n\n", about.figure, about.title);
    let mut part = |head: &str, text: &str| {
        let _ = write!(out, "**{head}.** {}\n\n", text.trim());
    };
    part("Question", &about.question);
    part("Method", &about.method);
    part("Expected shape", &about.shape);
    part("Agreement and differences", &about.agrees);
    if let Some(missing) = &about.missing {
        part("Missing", missing);
    }
    if let Some(peers) = &about.peers {
        part("Peers", peers);
    }
    if !about.run.is_empty() {
        let _ = write!(out, "```sh\ncargo xtask experiment {}\n```\n\n", about.name);
    }
    for plot in &figure.plots {
        let _ = write!(out, "![{}]({}.svg)\n\n", plot.title, plot.stem);
        table(&mut out, plot);
    }
    match &figure.results {
        Some(results) => {
            let machine = &results.machine;
            let _ = writeln!(
                out,
                "Measured {}: {}, {} cores, {} MB of memory, Linux {}, {}, commit {}{}, {}.",
                results.at,
                machine.processor,
                machine.cores,
                machine.memory_mb,
                machine.kernel,
                machine.file_system,
                machine.commit,
                if machine.changed { " with changes" } else { "" },
                machine.compiler
            );
            for run in &results.runs {
                let (load, seconds) = (run.load_before, run.seconds);
                let _ = writeln!(out, "`{}`: {seconds:.0} s, load before {load:.1}.", run.command);
            }
            if let Some(absent) = results.absent(about) {
                let _ = writeln!(out, "{absent}");
            }
            out.push_str("Raw results: [results.json](results.json).\n");
        }
        None => out.push_str("There are no results yet.\n"),
    }
    out.push_str("\n`cargo xtask experiment` writes this page from `experiment.toml`.\n");
    out
}

fn table(out: &mut String, plot: &Plot) {
    for (at, line) in plot.cells.iter().enumerate() {
        let _ = writeln!(out, "| {} |", line.join(" | ").replace('_', "\\_"));
        if at == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
        }
    }
    out.push('\n');
}
