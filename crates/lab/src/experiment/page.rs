//! The page with all figures: one file of HTML that needs nothing else and reads well by day and by
//! night.
//!
//! Invariant: descriptions and results come in as text; only this file writes tags.

use std::fmt::Write as _;

use super::axis::short;
use super::describe::Artefact;
use super::figure::{Figure, Plot};
use super::results::Results;
use super::svg::{self, escape};

/// The page.
pub(crate) fn html(figures: &[Figure<'_>], artefacts: &[Artefact]) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Cudele: the figures, side by side</title>\n<style>",
    );
    out.push_str(include_str!("page.css"));
    out.push_str(&svg::style());
    out.push_str("</style></head>\n<body><div class=\"page\">\n");
    out.push_str("<main><header><h1>Cudele, measured</h1>\n");
    headlines(&mut out, figures);
    out.push_str("<h2>The figures, side by side</h2>\n");
    out.push_str(
        "<p>Every figure of the papers about Cudele and Mantle, measured on one \
         machine by one command, with the published values beside it. Filled and solid marks are \
         measured here, hollow and dashed marks are published. Both differ in hardware, in years and in \
         the number of machines: compare the shape, and, where a base is given, the ratio. Every ratio \
         has its absolute values beside it.</p>\n",
    );
    facts(&mut out, figures);
    out.push_str("</header>\n");
    for figure in figures {
        section(&mut out, figure);
    }
    not_copied(&mut out, artefacts);
    out.push_str(
        "<footer><p><code>cargo xtask experiment all</code> writes this page. Each published value \
         names its source: the text, the published raw data, or a reading off a graph (some 3 % \
         off).</p></footer>\n</main>\n",
    );
    // Last, so that a phone shows results first; a wide screen has it beside them.
    contents(&mut out, figures);
    out.push_str("</div></body></html>\n");
    out
}

/// The numbers that matter, each beside another, as links to the figures that they are of.
fn headlines(out: &mut String, figures: &[Figure<'_>]) {
    let mut lines = String::new();
    for figure in figures {
        let about = figure.description;
        let rows: Vec<_> = figure.results.iter().flat_map(Results::rows).collect();
        for headline in &about.headline {
            let value = |row: &str| super::pick::figure(&rows, row, &headline.value);
            let other = headline.over.as_deref().and_then(value).or(headline.published);
            let (Some(here), Some(other)) = (value(&headline.row), other) else { continue };
            if other == 0.0 {
                continue;
            }
            let unit = escape(&headline.unit);
            let _ = write!(
                lines,
                "<tr><td class=\"ratio\">{}</td><td><a href=\"#{}\">{}</a></td><td>{} {unit}</td>\
                 <td>{}: {} {unit}</td></tr>",
                ratio(here / other),
                escape(&about.name),
                prose(&headline.says),
                short(here),
                prose(&headline.beside),
                short(other),
            );
        }
    }
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<table class=\"headlines\"><tr><th>ratio</th><th>measurement</th><th>here</th><th>beside</th></tr>\
         {lines}</table>\n<p class=\"note\">Medians, of one machine that client and servers share. \
         The figure of each row has the repetitions and their spread.</p>"
    );
}

/// A ratio with two digits.
fn ratio(value: f64) -> String {
    match value {
        _ if value >= 9.95 => format!("{value:.0}x"),
        _ if value >= 0.1 => format!("{value:.2}x"),
        _ => format!("1/{:.0}", 1.0 / value),
    }
}

fn contents(out: &mut String, figures: &[Figure<'_>]) {
    out.push_str("<nav id=\"figures\" aria-label=\"Figures\"><b>Figures</b>");
    for figure in figures {
        let about = figure.description;
        let _ = write!(
            out,
            "<a href=\"#{}\">{}<span>{}</span></a>",
            escape(&about.name),
            escape(&about.figure),
            escape(&about.title)
        );
    }
    out.push_str("<a href=\"#not-copied\">Artefacts that we do not copy</a></nav>\n");
}

/// The common facts of all measurements, as far as they agree.
fn facts(out: &mut String, figures: &[Figure<'_>]) {
    let results: Vec<&Results> = figures.iter().filter_map(|one| one.results.as_ref()).collect();
    let Some(first) = results.first() else { return };
    let machine = &first.machine;
    let loads = results.iter().flat_map(|one| &one.runs).map(|run| run.load_before);
    let most = loads.fold(0.0, f64::max);
    let mut commits: Vec<&str> =
        results.iter().map(|results| results.machine.commit.as_str()).collect();
    commits.sort_unstable();
    commits.dedup();
    let quick = results.iter().any(|results| results.quick);
    let mut facts = vec![
        format!("{}, {} cores", machine.processor, machine.cores),
        format!("{} GB of memory", machine.memory_mb.div_ceil(1024)),
        format!("Linux {}", machine.kernel),
        format!("clusters on {}", machine.file_system),
        format!("from {}", results.iter().map(|one| one.at.as_str()).min().unwrap_or_default()),
        format!("load before a run: up to {most:.1}"),
        format!("commit {}", commits.join(", ")),
    ];
    if quick {
        facts.push("small sizes (--quick): not for comparing".into());
    }
    out.push_str("<ul class=\"facts\">");
    for fact in facts {
        let _ = write!(out, "<li>{}</li>", escape(&fact));
    }
    out.push_str("</ul>\n");
}

fn section(out: &mut String, figure: &Figure<'_>) {
    let about = figure.description;
    let _ = writeln!(
        out,
        "<section id=\"{}\"><div class=\"tag\">{}</div><h2>{}</h2><p class=\"question\">{}</p>",
        escape(&about.name),
        escape(&about.figure),
        escape(&about.title),
        prose(&about.question)
    );
    if let Some(missing) = &about.missing {
        let _ = writeln!(out, "<div class=\"missing\">{}</div>", prose(missing));
    }
    if figure.results.is_none() && !about.run.is_empty() {
        out.push_str(
            "<div class=\"missing\">Not measured yet: the picture has published values only.</div>\n",
        );
    }
    for plot in &figure.plots {
        let narrow: String = plot.narrow.iter().map(svg::inside).collect();
        let _ = write!(
            out,
            "<div class=\"plot wide\">{}</div><div class=\"plot narrow\">{narrow}</div>",
            svg::inside(&plot.scene)
        );
    }
    let _ = writeln!(out, "<p class=\"says\">{}</p>", prose(&about.agrees));
    if !figure.plots.is_empty() {
        out.push_str("<details><summary>Values</summary>");
        figure.plots.iter().for_each(|plot| table(out, plot));
        known(out, figure);
        out.push_str("</details>\n");
    }
    method(out, figure);
    out.push_str("</section>\n");
}

fn table(out: &mut String, plot: &Plot) {
    let _ = write!(out, "<p>{}</p><div class=\"scroll\"><table>", escape(&plot.title));
    for (at, line) in plot.cells.iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in line {
            let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>\n");
}

/// Where published values come from.
fn known(out: &mut String, figure: &Figure<'_>) {
    let mut said: Vec<String> = Vec::new();
    for published in figure.description.chart.iter().flat_map(|chart| &chart.published) {
        let text = format!("{}: {}.", published.label, published.known);
        if !said.contains(&text) {
            said.push(text);
        }
    }
    if !said.is_empty() {
        let _ = write!(out, "<p>{}</p>", escape(&said.join(" ")));
    }
}

fn method(out: &mut String, figure: &Figure<'_>) {
    let about = figure.description;
    out.push_str("<details><summary>Method, commands, files</summary>");
    let _ = write!(
        out,
        "<p>{}</p><p><b>Expected.</b> {}</p>",
        prose(&about.method),
        prose(&about.shape)
    );
    if let Some(peers) = &about.peers {
        let _ = write!(out, "<p><b>Peers.</b> {}</p>", prose(peers));
    }
    if !about.run.is_empty() {
        let _ = write!(out, "<pre>cargo xtask experiment {}</pre>", escape(&about.name));
    }
    if let Some(results) = &figure.results {
        let run = |run: &super::results::Done| {
            let command = escape(&run.command);
            let (seconds, before, after) = (run.seconds, run.load_before, run.load_after);
            format!(
                "<li><code>{command}</code> took {seconds:.0} s; load {before:.1} before, \
                 {after:.1} after</li>"
            )
        };
        let runs: String = results.runs.iter().map(run).collect();
        let _ = write!(out, "<p>Measured {}:</p><ul>{runs}</ul>", escape(&results.at));
        if let Some(absent) = results.absent(about) {
            let _ = write!(out, "<p>{}</p>", prose(&absent));
        }
        let name = escape(&about.name);
        let _ = write!(out, "<p class=\"files\"><a href=\"{name}/results.json\">results.json</a>");
        for plot in &figure.plots {
            let stem = &plot.stem;
            let _ = write!(
                out,
                " · <a href=\"{name}/{stem}.svg\">{stem}.svg</a> · \
                 <a href=\"{name}/{stem}.png\">{stem}.png</a>"
            );
        }
        out.push_str("</p>");
    }
    out.push_str("</details>\n");
}

fn not_copied(out: &mut String, artefacts: &[Artefact]) {
    out.push_str(
        "<section id=\"not-copied\"><div class=\"tag\">Reading the originals</div><h2>Artefacts that we \
         do not copy</h2><p class=\"question\">The published runs contain artefacts of their scripts, and \
         the papers some slips. The experiments here leave both out, so that they cause no \
         difference.</p><div class=\"scroll\"><table class=\"prose\"><tr><th>published</th><th>here</th></tr>",
    );
    for artefact in artefacts {
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td></tr>",
            prose(&artefact.published),
            prose(&artefact.here)
        );
    }
    out.push_str("</table></div></section>\n");
}

/// Text in which backquotes mean code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.trim().split('`').enumerate() {
        let part = escape(part);
        if at % 2 == 1 {
            let _ = write!(out, "<code>{part}</code>");
        } else {
            out.push_str(&part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::prose;

    #[test]
    fn backquotes_are_code_and_tags_are_text() {
        assert_eq!(prose(" a `b<c` d "), "a <code>b&lt;c</code> d");
    }
}
