//! Numbers as people read them. Every renderer uses these, so text and page agree.
//!
//! # Not here
//! No layout.

use crate::effect::Scale;

/// 12345678 as "12,345,678".
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A fraction as a percentage with `digits` decimals: 0.1234 as "12.3 %".
pub(crate) fn percent(value: f64, digits: usize) -> String {
    format!("{:.digits$} %", no_minus_zero(value * 100.0, digits))
}

/// A fraction in percent with as many digits as somebody wrote: 0.005 as "0.5".
pub(crate) fn plain_percent(value: f64) -> String {
    // 0.07 times 100 is 7.000000000000001.
    format!("{}", (value * 1e14).round() / 1e12)
}

/// A share that is not 0, with two decimals and never as 0: "<0.01 %".
pub(crate) fn small_share(value: f64) -> String {
    if value < 0.000_1 { "<0.01 %".into() } else { percent(value, 2) }
}

/// A fraction as a signed percentage: "+5.2 %", "−0.41 %".
pub(crate) fn signed_percent(value: f64) -> String {
    let magnitude = (value * 100.0).abs();
    let digits = match magnitude {
        m if m >= 999.5 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.0995 || m == 0.0 => 2,
        _ => 3,
    };
    format!("{} %", signed(value * 100.0, digits))
}

/// An effect on its scale: percent for lifts, points for shares, plain otherwise.
pub(crate) fn effect(value: f64, scale: Scale, is_share: bool) -> String {
    match scale {
        Scale::Relative => signed_percent(value),
        Scale::Absolute if is_share => {
            format!("{} pp", signed(value * 100.0, 3))
        }
        Scale::Absolute => {
            let digits = decimals(value);
            signed(value, digits)
        }
    }
}

/// An arm's own value: a percentage for shares, about four digits otherwise.
pub(crate) fn value(value: Option<f64>, is_share: bool) -> String {
    match value {
        None => "–".into(),
        Some(value) if is_share => percent(value, if value.abs() >= 0.01 { 2 } else { 4 }),
        Some(value) => plain(value),
    }
}

/// About four significant digits, thousands separated, powers of ten beyond a trillion.
pub(crate) fn plain(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1e12 || value.abs() < 1e-6) {
        return format!("{value:.3e}").replace('-', "−");
    }
    let text = format!("{:.*}", decimals(value), value.abs());
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    // Below 1e12 the whole part fits a u64.
    let whole = count(whole.parse().unwrap_or(0));
    let sign = if value < 0.0 && text.bytes().any(|b| b.is_ascii_digit() && b != b'0') {
        "−"
    } else {
        ""
    };
    match fraction {
        Some(fraction) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{whole}"),
    }
}

/// "0.012", and small values with their power of ten, "1.6e−9", never "<0.001".
pub(crate) fn p_value(p: f64) -> String {
    match p {
        p if p >= 0.1 => format!("{p:.2}"),
        p if p >= 0.001 => format!("{p:.*}", if p >= 0.01 { 3 } else { 4 }),
        // The smallest tail that is computed as such; below it lies underflow.
        p if p < 1e-300 => "<1e−300".into(),
        p => format!("{p:.1e}").replace('-', "−"),
    }
}

/// alpha 0.05 as "95 %".
pub(crate) fn coverage(alpha: f64) -> String {
    let percent = (1.0 - alpha) * 100.0;
    let digits = usize::from((percent - percent.round()).abs() > 1e-9);
    format!("{percent:.digits$} %")
}

/// Seconds in the two largest units that they fill: "42.5 s", "3 min 20 s", "2 d 4 h".
pub(crate) fn duration(seconds: f64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    if seconds < 59.95 {
        let digits = usize::from(seconds.fract() != 0.0);
        return format!("{seconds:.digits$} s");
    }
    // To the smaller unit, so that 119.6 s are 2 min and not 1 min 60 s.
    let unit = if seconds >= 86_370.0 {
        3_600.0
    } else if seconds >= 3_599.5 {
        60.0
    } else {
        1.0
    };
    let rounded = ((seconds / unit).round() * unit) as u64;
    let largest = UNITS.iter().position(|(_, unit)| rounded >= *unit).unwrap_or(0);
    let (name, unit) = UNITS[largest];
    let mut words = format!("{} {name}", rounded / unit);
    if let Some((name, smaller)) = UNITS.get(largest + 1)
        && rounded % unit / smaller > 0
    {
        words.push_str(&format!(" {} {name}", rounded % unit / smaller));
    }
    words
}

fn decimals(value: f64) -> usize {
    match value.abs() {
        m if m >= 100_000.0 => 0,
        m if m >= 1000.0 => 1,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        m if m >= 0.001 || m == 0.0 => 4,
        _ => 7,
    }
}

fn signed(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let zero = !text.bytes().any(|byte| byte.is_ascii_digit() && byte != b'0');
    let sign = if zero {
        "±"
    } else if value < 0.0 {
        "−"
    } else {
        "+"
    };
    format!("{sign}{text}")
}

fn no_minus_zero(value: f64, digits: usize) -> f64 {
    if value.abs() < 0.5 * 10f64.powi(-(digits as i32)) { 0.0 } else { value }
}

/// Control characters would move the cursor or turn the text round; marks stand for them.
#[must_use]
pub fn visible(text: &str) -> String {
    if !text.contains(moves_the_cursor) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| match c {
            '\n' => '⏎',
            '\t' => '⇥',
            c if moves_the_cursor(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Controls, and what changes the direction of text, separates lines or is not seen.
pub(crate) fn moves_the_cursor(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(percent(-0.00001, 1), "0.0 %");
        assert_eq!(signed_percent(0.05234), "+5.23 %");
        assert_eq!(signed_percent(-0.1234), "−12.3 %");
        assert_eq!(signed_percent(0.0), "±0.00 %");
        assert_eq!(plain(1234567.8), "1,234,568");
        assert_eq!(plain(1234.56), "1,234.6");
        assert_eq!(small_share(0.000_01), "<0.01 %");
        assert_eq!(plain(-28.3435), "−28.34");
        assert_eq!(plain(0.26353), "0.2635");
        assert_eq!(plain(-1e-9), "−1.000e−9");
        assert_eq!(value(Some(0.1902), true), "19.02 %");
        assert_eq!(value(None, false), "–");
        assert_eq!(p_value(0.0015563), "0.0016");
        assert_eq!(p_value(3.2e-300), "3.2e−300");
        assert_eq!(p_value(0.0), "<1e−300");
        assert_eq!(duration(0.0), "0 s");
        assert_eq!(duration(42.54), "42.5 s");
        assert_eq!(duration(59.96), "1 min");
        assert_eq!(duration(200.4), "3 min 20 s");
        assert_eq!(duration(3_599.7), "1 h");
        assert_eq!(duration(3_930.0), "1 h 6 min");
        assert_eq!(duration(86_399.0), "1 d");
        assert_eq!(duration(187_200.0), "2 d 4 h");
        assert_eq!(coverage(0.05), "95 %");
        assert_eq!(coverage(0.005), "99.5 %");
    }
}
