//! A scene as SVG: with its colours for light and for dark, or bare for a page that has them.

use std::fmt::Write as _;

use super::scene::{Anchor, Ink, Mark, Scene, Spot, TEXT_SIZE};

/// The colours of series: on white, and on black.
pub(crate) const PALETTE: [(&str, &str); 8] = [
    ("#1f5fbf", "#6ea8ff"),
    ("#c2410c", "#ff9a5c"),
    ("#0f766e", "#4fd1c0"),
    ("#7e22ce", "#c997ff"),
    ("#a16207", "#f2c14e"),
    ("#be185d", "#ff7fb3"),
    ("#3f6212", "#a9d65c"),
    ("#475569", "#a8b5c7"),
];

/// Parts without a series: text, muted text, grid, paper.
pub(crate) const PLAIN: [(&str, &str, &str); 4] = [
    ("t", "#1c2430", "#e7ebf0"),
    ("m", "#667085", "#98a2b3"),
    ("g", "#e4e7ec", "#2b3340"),
    ("p", "#ffffff", "#12161c"),
];

/// Rules for all classes that pictures use.
pub(crate) fn style() -> String {
    let rules = |dark: bool| {
        let mut text = String::new();
        let series = PALETTE.iter().enumerate();
        let series = series.map(|(at, (light, night))| (format!("s{at}"), *light, *night));
        let plain = PLAIN.iter().map(|(class, light, night)| ((*class).to_owned(), *light, *night));
        for (class, light, night) in plain.chain(series) {
            let colour = if dark { night } else { light };
            let _ = write!(text, ".{class}{{stroke:{colour}}}.f{class}{{fill:{colour}}}");
        }
        text
    };
    let font = "ui-monospace,'Noto Sans Mono','DejaVu Sans Mono',Menlo,Consolas,monospace";
    format!(
        ".chart text{{font:{TEXT_SIZE}px {font};stroke:none}}.chart .b{{font-weight:700}}\
         .chart path{{fill:none;stroke-linejoin:round;stroke-linecap:round}}{}\
         @media(prefers-color-scheme:dark){{{}}}",
        rules(false),
        rules(true)
    )
}

/// A picture that stands alone.
pub(crate) fn alone(scene: &Scene) -> String {
    let style = style();
    let paper = format!(
        "<style>{style}</style><rect width=\"{}\" height=\"{}\" class=\"fp\"/>",
        scene.width, scene.height
    );
    picture(scene, &paper)
}

/// A picture for a page that has the style.
pub(crate) fn inside(scene: &Scene) -> String {
    // The page has these widths in its style: thousands of marks share them.
    let text = picture(scene, "");
    text.replace(" stroke-width=\"1\"", "").replace(" stroke-width=\"1.8\"", "")
}

fn picture(scene: &Scene, head: &str) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" viewBox=\"0 0 {} {}\" \
         width=\"{0}\" height=\"{1}\"><title>{}</title>{head}",
        scene.width,
        scene.height,
        escape(&scene.description)
    );
    for mark in &scene.marks {
        one(&mut out, mark);
    }
    out.push_str("</svg>\n");
    out
}

fn one(out: &mut String, mark: &Mark) {
    let written = match mark {
        Mark::Line { places, ink, width, dashed } => {
            let path: Vec<_> =
                places.iter().map(|Spot { x, y }| format!("{x:.1} {y:.1}")).collect();
            let dash = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            let (class, path) = (class(*ink), path.join("L"));
            write!(out, "<path class=\"{class}\" stroke-width=\"{width}\"{dash} d=\"M{path}\"/>")
        }
        Mark::Dot { at: Spot { x, y }, radius, ink, filled } => {
            let class = class(*ink);
            let fill = if *filled { format!("{class} f{class}") } else { format!("{class} fp") };
            let place = format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"");
            write!(out, "<circle class=\"{fill}\" stroke-width=\"1.8\" {place}/>")
        }
        Mark::Text { at: Spot { x, y }, text, style } => {
            let anchor = match style.anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let bold = if style.bold { " b" } else { "" };
            let (class, text) = (class(style.ink), escape(text));
            write!(
                out,
                "<text class=\"f{class}{bold}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{text}</text>"
            )
        }
    };
    // A string takes everything.
    let _ = written;
}

fn class(ink: Ink) -> String {
    match ink {
        Ink::Text => "t".into(),
        Ink::Muted => "m".into(),
        Ink::Grid => "g".into(),
        Ink::Paper => "p".into(),
        Ink::Series(at) => format!("s{}", at % PALETTE.len()),
    }
}

/// For text between tags and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_in_svg() {
        let mut scene =
            Scene { width: 10.0, height: 10.0, marks: Vec::new(), description: "<b>".into() };
        scene.text(Spot { x: 1.0, y: 2.0 }, "a<b&\"c\"", Ink::Text, Anchor::End);
        let text = alone(&scene);
        assert!(text.contains("a&lt;b&amp;&quot;c&quot;") && text.contains("<title>&lt;b&gt;"));
        assert!(!inside(&scene).contains("<style>"));
    }
}
