//! A scene as PNG, light, at twice the size. Glyphs come with the program, as pictures: no fonts of
//! the machine, no engine that shapes text.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Stroke,
    StrokeDash, Transform,
};
use types::{Errno, Error, Result};

use super::scene::{Anchor, Ink, Mark, Scene, Spot, TextStyle};
use super::svg::{PALETTE, PLAIN};

/// Pixels for each unit of a scene.
const DENSITY: f32 = 2.0;
const HEIGHT: RasterHeight = RasterHeight::Size24;
/// From a glyph's upper edge to the base line of the text, in pixels.
const ASCENT: i32 = 18;

/// The picture as bytes of a file.
pub(crate) fn picture(scene: &Scene) -> Result<Vec<u8>> {
    let failed = |cause: String| Error::new(Errno::Invalid, "a picture", cause);
    let (width, height) = (pixels(scene.width), pixels(scene.height));
    let mut paper = Pixmap::new(width.unsigned_abs(), height.unsigned_abs())
        .ok_or_else(|| failed(format!("{width} by {height} pixels are none")))?;
    paper.fill(colour(Ink::Paper));
    for mark in &scene.marks {
        one(&mut paper, mark);
    }
    encoded(&paper).map_err(|error| failed(error.to_string()))
}

/// Small: without transparency, with eight strengths of each colour, and as lines of one colour
/// after the other, as plots have them.
fn encoded(paper: &Pixmap) -> std::result::Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, paper.width(), paper.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    let coarse = |part: u8| if part > 0xf0 { 0xff } else { part & 0xe0 | part >> 3 & 0x1c };
    let colour =
        |pixel: &PremultipliedColorU8| [pixel.red(), pixel.green(), pixel.blue()].map(coarse);
    let colours: Vec<u8> = paper.pixels().iter().flat_map(colour).collect();
    encoder.write_header()?.write_image_data(&colours)?;
    Ok(bytes)
}

#[allow(clippy::cast_possible_truncation, reason = "places on paper are small numbers")]
fn single(value: f64) -> f32 {
    value as f32
}

#[allow(clippy::cast_possible_truncation, reason = "places on paper are small numbers")]
fn pixels(value: f64) -> i32 {
    (value * f64::from(DENSITY)).round() as i32
}

fn one(paper: &mut Pixmap, mark: &Mark) {
    let scale = Transform::from_scale(DENSITY, DENSITY);
    match mark {
        Mark::Line { places, ink, width, dashed } => {
            let mut path = PathBuilder::new();
            for (at, Spot { x, y }) in places.iter().enumerate() {
                let (x, y) = (single(*x), single(*y));
                if at == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
            }
            let dash = dashed.then(|| StrokeDash::new(vec![5.0, 4.0], 0.0)).flatten();
            let stroke = Stroke {
                width: single(*width),
                line_cap: LineCap::Round,
                line_join: LineJoin::Round,
                dash,
                ..Stroke::default()
            };
            if let Some(path) = path.finish() {
                paper.stroke_path(&path, &paint(*ink), &stroke, scale, None);
            }
        }
        Mark::Dot { at: Spot { x, y }, radius, ink, filled } => {
            let circle = PathBuilder::from_circle(single(*x), single(*y), single(*radius));
            if let Some(circle) = circle {
                let inside = paint(if *filled { *ink } else { Ink::Paper });
                paper.fill_path(&circle, &inside, FillRule::Winding, scale, None);
                let stroke = Stroke { width: 1.8, ..Stroke::default() };
                paper.stroke_path(&circle, &paint(*ink), &stroke, scale, None);
            }
        }
        Mark::Text { at, text: said, style } => text(paper, *at, said, *style),
    }
}

fn paint(ink: Ink) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color(colour(ink));
    paint.anti_alias = true;
    paint
}

fn colour(ink: Ink) -> Color {
    let code = match ink {
        Ink::Text => PLAIN[0].1,
        Ink::Muted => PLAIN[1].1,
        Ink::Grid => PLAIN[2].1,
        Ink::Paper => PLAIN[3].1,
        Ink::Series(at) => PALETTE[at % PALETTE.len()].0,
    };
    let part = |from: usize| {
        let digits = code.get(from..from + 2).unwrap_or("00");
        u8::from_str_radix(digits, 16).unwrap_or(0)
    };
    Color::from_rgba8(part(1), part(3), part(5), 255)
}

fn text(paper: &mut Pixmap, at: Spot, text: &str, style: TextStyle) {
    let weight = if style.bold { FontWeight::Bold } else { FontWeight::Regular };
    let advance = i32::try_from(get_raster_width(weight, HEIGHT)).unwrap_or(12);
    let length = advance * i32::try_from(text.chars().count()).unwrap_or(0);
    let left = pixels(at.x)
        - match style.anchor {
            Anchor::Start => 0,
            Anchor::Middle => length / 2,
            Anchor::End => length,
        };
    let top = pixels(at.y) - ASCENT;
    let ink = colour(style.ink).to_color_u8();
    let mut x = left;
    for c in text.chars() {
        let glyph = get_raster(c, weight, HEIGHT).or_else(|| get_raster('?', weight, HEIGHT));
        if let Some(glyph) = glyph {
            for (row, line) in (top..).zip(glyph.rows()) {
                for (column, strength) in (x..).zip(line) {
                    blend(paper, column, row, ink, *strength);
                }
            }
        }
        x += advance;
    }
}

/// Lays ink over the paper; outside the paper is nothing.
fn blend(paper: &mut Pixmap, x: i32, y: i32, ink: tiny_skia::ColorU8, strength: u8) {
    let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
    if strength == 0 || x >= paper.width() || y >= paper.height() {
        return;
    }
    let Ok(at) = usize::try_from(y * paper.width() + x) else { return };
    if let Some(pixel) = paper.pixels_mut().get_mut(at) {
        let mix = |under: u8, over: u8| {
            let sum = u32::from(under) * u32::from(255 - strength)
                + u32::from(over) * u32::from(strength);
            u8::try_from(sum / 255).unwrap_or(u8::MAX)
        };
        let mixed = PremultipliedColorU8::from_rgba(
            mix(pixel.red(), ink.red()),
            mix(pixel.green(), ink.green()),
            mix(pixel.blue(), ink.blue()),
            255,
        );
        *pixel = mixed.unwrap_or(*pixel);
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::scene::spot;

    use super::*;

    #[test]
    fn strokes_and_letters_leave_ink() {
        let mut scene =
            Scene { width: 60.0, height: 30.0, marks: Vec::new(), description: String::new() };
        let blank = picture(&scene).expect("a picture");
        scene.text(spot(30.0, 15.0), "é: 12", Ink::Text, Anchor::Middle);
        let text = picture(&scene).expect("a picture");
        scene.line(spot(-5.0, 2.0), spot(80.0, 90.0), Ink::Series(11), 2.0);
        let line = picture(&scene).expect("a picture");
        assert!(blank != text && text != line);
        assert_eq!(&line[1..4], b"PNG");
        let nothing = Scene { width: 0.0, ..scene };
        assert!(picture(&nothing).is_err());
    }
}
