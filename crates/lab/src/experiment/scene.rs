//! A picture as a list of strokes, for both writers, of SVG and of PNG.
//!
//! Text is set in a font in which all characters are equally wide, so that the layout is the same
//! everywhere. Invariant: nothing here depends on fonts of the machine.

/// Width of a character as a part of the font's size.
pub(crate) const ADVANCE: f64 = 0.6;
/// The one size of text.
pub(crate) const TEXT_SIZE: f64 = 12.0;

/// The role of a colour; the writer and the reader's theme choose the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Text,
    Muted,
    Grid,
    Paper,
    Series(usize),
}

/// Where a text is from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A place on the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spot {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// The place with these distances from the left and the upper edge.
pub(crate) fn spot(x: f64, y: f64) -> Spot {
    Spot { x, y }
}

/// The look of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextStyle {
    pub(crate) ink: Ink,
    pub(crate) anchor: Anchor,
    pub(crate) bold: bool,
}

/// A stroke.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// From place to place.
    Line { places: Vec<Spot>, ink: Ink, width: f64, dashed: bool },
    /// Filled, or with paper inside.
    Dot { at: Spot, radius: f64, ink: Ink, filled: bool },
    /// The place is the left, middle or right end of the text's base line.
    Text { at: Spot, text: String, style: TextStyle },
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) marks: Vec<Mark>,
    /// The text for readers that cannot see it.
    pub(crate) description: String,
}

impl Scene {
    pub(crate) fn line(&mut self, from: Spot, to: Spot, ink: Ink, width: f64) {
        self.marks.push(Mark::Line { places: vec![from, to], ink, width, dashed: false });
    }

    pub(crate) fn text(&mut self, at: Spot, text: &str, ink: Ink, anchor: Anchor) {
        let style = TextStyle { ink, anchor, bold: false };
        self.marks.push(Mark::Text { at, text: text.to_owned(), style });
    }

    pub(crate) fn bold(&mut self, at: Spot, text: &str) {
        let style = TextStyle { ink: Ink::Text, anchor: Anchor::Start, bold: true };
        self.marks.push(Mark::Text { at, text: text.to_owned(), style });
    }
}

/// How wide a text is.
pub(crate) fn width(text: &str) -> f64 {
    super::pick::index(text.chars().count()) * TEXT_SIZE * ADVANCE
}
