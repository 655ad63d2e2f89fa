//! Colours that people with colour blindness can distinguish (after Okabe and Ito), each for light and dark
//! backgrounds.
//!
//! Pictures are written in the light colours. A style sheet at their head replaces each with its dark twin if the
//! reader has asked for dark pages; viewers without style sheets show the light colours.

use std::fmt::Write;

/// A colour for light backgrounds, and its twin for dark ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tone {
    /// Red, green, blue on a light background.
    pub light: [u8; 3],
    /// Red, green, blue on a dark background.
    pub dark: [u8; 3],
}

const fn tone(light: u32, dark: u32) -> Tone {
    Tone {
        light: [(light >> 16) as u8, (light >> 8) as u8, light as u8],
        dark: [(dark >> 16) as u8, (dark >> 8) as u8, dark as u8],
    }
}

impl Tone {
    /// The background of pictures.
    pub const PAPER: Self = tone(0x00FF_FFFF, 0x0015_181D);
    /// Text and axes.
    pub const INK: Self = tone(0x0022_2222, 0x00E8_E8E8);
    /// Less important text.
    pub const FAINT: Self = tone(0x0063_6363, 0x00A9_A9A9);
    /// The lines of a grid, and spare drives.
    pub const GRID: Self = tone(0x00DE_DEDE, 0x0034_383F);
    /// Blue, vermilion, green, purple, ochre, teal, grey: the colours of series, in order.
    pub const SERIES: [Self; 7] = [
        tone(0x0000_72B2, 0x004A_A8E0),
        tone(0x00D5_5E00, 0x00FF_8A3D),
        tone(0x0000_9E73, 0x002C_C79A),
        tone(0x00B5_4F8C, 0x00E3_93BF),
        tone(0x0093_7000, 0x00E6_C229),
        tone(0x002F_6F7E, 0x007F_CFE0),
        tone(0x006B_6B6B, 0x00B5_B5B5),
    ];

    /// The colour of series `index`.
    pub fn of_series(index: usize) -> Self {
        Self::SERIES[index % Self::SERIES.len()]
    }

    /// Its notation in pictures: `#0072B2`.
    pub fn hex(self) -> String {
        hex(self.light)
    }
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The style sheet that replaces every colour, in the notation of [`Tone::hex`], with its dark twin on dark pages.
pub(super) fn dark_twins() -> String {
    let mut sheet = String::from("@media (prefers-color-scheme: dark) {");
    for tone in [Tone::PAPER, Tone::INK, Tone::FAINT, Tone::GRID].into_iter().chain(Tone::SERIES) {
        let (light, dark) = (hex(tone.light), hex(tone.dark));
        let _ = write!(sheet, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    sheet.push('}');
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG 2).
    fn luminance(rgb: [u8; 3]) -> f64 {
        let part = |byte: u8| {
            let share = f64::from(byte) / 255.0;
            if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2])
    }

    fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
        let (a, b) = (luminance(one) + 0.05, luminance(other) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn every_series_stands_out_from_both_backgrounds() {
        for tone in Tone::SERIES {
            assert!(contrast(tone.light, Tone::PAPER.light) >= 3.0, "{tone:?} on light");
            assert!(contrast(tone.dark, Tone::PAPER.dark) >= 3.0, "{tone:?} on dark");
        }
        for words in [Tone::INK, Tone::FAINT] {
            assert!(contrast(words.light, Tone::PAPER.light) >= 4.5, "{words:?} on light");
            assert!(contrast(words.dark, Tone::PAPER.dark) >= 4.5, "{words:?} on dark");
        }
    }
}
