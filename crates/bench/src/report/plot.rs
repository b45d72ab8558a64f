//! Plots as SVG text: curves with intervals, distributions, bars. No script, no font, no file besides.
//!
//! Invariant: what is drawn is what the table beside it says; text is escaped; a figure that is not finite is left
//! out, never drawn somewhere else.

use super::{Axis, Bars, CONFIDENCE, Distribution, Series, table::digits};
use crate::report::Unit;
use crate::stats::Estimate;
use std::fmt::Write as _;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;

/// Colours that the colour-blind tell apart: M. Okabe and K. Ito, "Color Universal Design" (2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888", "#b8a800"];

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// `text` inside an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// One direction of a plot.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

/// Units that a label below an axis needs: where there is not as much room, places have none.
const LABEL: f64 = 44.0;

impl Scale {
    /// Of figures whose intervals reach up to `reach`: from zero, or logarithmic where the figures span more than what
    /// can be seen from zero. A long interval ends at the frame, so that it does not flatten everything else.
    fn of(values: &[f64], reach: f64, unit: Unit, (from, to): (f64, f64)) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        let high = reach.clamp(most, most * 1.5);
        let least = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let log =
            least.is_finite() && most / least > 50.0 && !values.contains(&0.0) && unit != Unit::Fraction;
        let (low, high) = match (log, high > 0.0) {
            (true, _) => (10f64.powf(least.log10().floor()), 10f64.powf(high.log10().ceil())),
            (false, true) => (0.0, high * 1.08),
            (false, false) => (0.0, 1.0),
        };
        Self { low, high, log, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let part = match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + (self.to - self.from) * part.clamp(0.0, 1.0)
    }

    /// Round numbers along it.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (first, last) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (first..=last).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|f| f * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
        (0..).map(|n| f64::from(n) * step).take_while(|t| *t <= self.high).take(20).collect()
    }
}

/// The frame that all plots share: size, title of the y axis, lines across.
fn canvas(y: &Scale, unit: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\" role=\"img\">\n\
         <text x=\"2\" y=\"14\" font-size=\"11\" opacity=\"0.7\">{}</text>\n",
        escape(unit)
    );
    for tick in y.ticks() {
        let at = y.place(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"currentColor\" opacity=\"0.15\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(tick)
        );
    }
    svg
}

/// A tick's label, without zeros that say nothing.
fn number(value: f64) -> String {
    let text = format!("{:.*}", if value.abs() >= 1e4 { 0 } else { 6 }, value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The names of the colours, along the top.
fn legend(names: &[&str]) -> String {
    let mut svg = String::new();
    let mut x = LEFT + 30.0;
    for (index, name) in names.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"5\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"15\">{}</text>",
            colour(index),
            x + 16.0,
            escape(name)
        );
        x += 32.0 + 7.0 * name.chars().count() as f64;
    }
    svg
}

/// One curve a device over the places of the group's axis, with the interval of each figure. A group without an axis
/// is one column a device. `None` when nothing can be drawn.
pub(super) fn curves(group: &[&Series]) -> Option<String> {
    let points: Vec<Point> = group.iter().filter_map(|series| Point::of(series)).collect();
    let first = points.first()?;
    let mut devices: Vec<&str> = Vec::new();
    let mut places: Vec<f64> = Vec::new();
    for point in &points {
        if !devices.contains(&point.device) {
            devices.push(point.device);
        }
        if !places.contains(&point.at) {
            places.push(point.at);
        }
    }
    places.sort_by(f64::total_cmp);
    let values: Vec<f64> = points.iter().map(|p| p.value).collect();
    let reach = points.iter().map(|p| p.high).fold(0.0, f64::max);
    let y = Scale::of(&values, reach, first.unit, (HEIGHT - BOTTOM, TOP));
    let x = Across::of(first.axis, &places);
    let mut svg = canvas(&y, first.unit.scale().0);
    svg.push_str(&x.labels(&places));
    for (index, device) in devices.iter().enumerate() {
        let mut line: Vec<&Point> = points.iter().filter(|p| p.device == *device).collect();
        line.sort_by(|a, b| a.at.total_cmp(&b.at));
        if first.axis.is_none() {
            svg.push_str(&column(&y, index, devices.len(), &line));
            continue;
        }
        let path: Vec<String> =
            line.iter().map(|p| format!("{:.1},{:.1}", x.place(p.at), y.place(p.value))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.join(" "),
            colour(index)
        );
        for point in line {
            svg.push_str(&mark(&y, x.place(point.at), index, point));
        }
    }
    svg.push_str(&legend(&devices));
    svg.push_str("</svg>\n");
    Some(svg)
}

/// A figure to be drawn, in the unit of the plot.
struct Point<'a> {
    device: &'a str,
    axis: Option<Axis>,
    at: f64,
    value: f64,
    low: f64,
    high: f64,
    unit: Unit,
}

impl<'a> Point<'a> {
    fn of(series: &'a Series) -> Option<Self> {
        let estimate = Estimate::of(&series.rounds, series.resolution, CONFIDENCE)?;
        let (_, divisor) = series.unit.scale();
        let half = estimate.half_width.unwrap_or(0.0);
        Some(Self {
            device: &series.key.device,
            axis: series.key.at.map(|(axis, _)| axis),
            at: series.key.at.map_or(0.0, |(_, at)| at),
            value: estimate.mean / divisor,
            low: (estimate.mean - half).max(0.0) / divisor,
            high: (estimate.mean + half) / divisor,
            unit: series.unit,
        })
    }

    fn said(&self) -> String {
        let digits = digits(self.value);
        let place = self.axis.map_or_else(String::new, |axis| format!(", {}", axis.show(self.at)));
        format!("{}{place}: {:.digits$} {}", self.device, self.value, self.unit.scale().0)
    }
}

fn mark(y: &Scale, x: f64, index: usize, point: &Point) -> String {
    format!(
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{c}\" stroke-width=\"1.2\"/>\
         <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{c}\"><title>{}</title></circle>\n",
        y.place(point.low),
        y.place(point.high),
        y.place(point.value),
        escape(&point.said()),
        c = colour(index)
    )
}

fn column(y: &Scale, index: usize, count: usize, line: &[&Point]) -> String {
    let Some(point) = line.first() else { return String::new() };
    let slot = (WIDTH - LEFT - RIGHT) / count as f64;
    let (middle, half) = (LEFT + slot * (index as f64 + 0.5), (slot * 0.3).min(40.0));
    format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" opacity=\"0.75\"/>\n{}\
         <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
        middle - half,
        y.place(point.value),
        half * 2.0,
        (y.place(0.0) - y.place(point.value)).max(0.0),
        colour(index),
        mark(y, middle, index, point),
        HEIGHT - BOTTOM + 18.0,
        escape(point.device)
    )
}

/// The x direction of curves: loads at their distance, frame sizes and hosts side by side as the RFC's graphs have them.
struct Across {
    axis: Option<Axis>,
    scale: Scale,
    places: Vec<f64>,
}

impl Across {
    fn of(axis: Option<Axis>, places: &[f64]) -> Self {
        let (from, to) = (LEFT + 24.0, WIDTH - RIGHT - 24.0);
        let (low, high) = match (places.first(), places.last()) {
            (Some(low), Some(high)) if high > low => (*low, *high),
            _ => (0.0, 1.0),
        };
        Self { axis, scale: Scale { low, high, log: false, from, to }, places: places.to_vec() }
    }

    fn place(&self, at: f64) -> f64 {
        if self.axis == Some(Axis::Load) && self.places.len() > 1 {
            return self.scale.place(at);
        }
        let index = self.places.iter().position(|place| *place == at).unwrap_or(0) as f64;
        let step = (self.scale.to - self.scale.from) / (self.places.len().max(2) - 1) as f64;
        self.scale.from + step * index
    }

    fn labels(&self, places: &[f64]) -> String {
        let mut svg = String::new();
        let Some(axis) = self.axis else { return svg };
        let mut free = f64::NEG_INFINITY;
        for place in places {
            if self.place(*place) < free {
                continue;
            }
            free = self.place(*place) + LABEL;
            let text = match axis {
                Axis::Load => axis.show(*place),
                _ => number(*place),
            };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                self.place(*place),
                HEIGHT - BOTTOM + 18.0
            );
        }
        let name = match axis {
            Axis::FrameBytes => "frame size, bytes",
            other => other.name(),
        };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" opacity=\"0.7\">{name}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 8.0
        );
        svg
    }
}

/// Distributions over each other: the share of samples by value, the value logarithmic. `None` without samples.
pub(super) fn distributions(all: &[&Distribution]) -> Option<String> {
    const BINS: usize = 120;
    /// Half of a bucket of `histogram`, as a part of its value.
    const BUCKET_HALF: f64 = 1.0 / 64.0;
    let values: Vec<f64> =
        all.iter().flat_map(|d| &d.buckets).map(|b| b.0).filter(|v| *v > 0.0 && v.is_finite()).collect();
    let (unit, divisor) = all.first()?.unit.scale();
    let low = values.iter().copied().reduce(f64::min)? / divisor / 1.2;
    let high = values.iter().copied().reduce(f64::max)? / divisor * 1.2;
    let x = Scale { low, high, log: true, from: LEFT + 8.0, to: WIDTH - RIGHT };
    let mut shares = Vec::new();
    for distribution in all {
        let samples: u64 = distribution.buckets.iter().map(|b| b.1).sum();
        let mut bins = vec![0.0; BINS];
        for (value, count) in &distribution.buckets {
            // What a bucket holds goes to the bins it covers, by how much of it they cover.
            let bin = |value: f64| (x.place(value / divisor) - x.from) / (x.to - x.from) * BINS as f64;
            let (begin, end) = (bin(value * (1.0 - BUCKET_HALF)), bin(value * (1.0 + BUCKET_HALF)));
            let width = (end - begin).max(1e-9);
            let share = *count as f64 / samples.max(1) as f64 * 100.0;
            for (index, bin) in bins.iter_mut().enumerate().skip(begin as usize).take(width as usize + 2) {
                let covered = (end.min(index as f64 + 1.0) - begin.max(index as f64)).max(0.0);
                *bin += share * covered / width;
            }
        }
        shares.push(bins);
    }
    let top = shares.iter().flatten().copied().fold(0.0, f64::max);
    let y = Scale { low: 0.0, high: top.max(0.1) * 1.08, log: false, from: HEIGHT - BOTTOM, to: TOP };
    let mut svg = canvas(&y, "% of frames");
    let step = (x.to - x.from) / BINS as f64;
    for (index, bins) in shares.iter().enumerate() {
        let mut path = format!("M{:.1},{:.1}", x.from, y.place(0.0));
        for (bin, share) in bins.iter().enumerate() {
            let _ = write!(path, "V{:.1}H{:.1}", y.place(*share), x.from + step * (bin + 1) as f64);
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}V{:.1}Z\" fill=\"{c}\" fill-opacity=\"0.2\" stroke=\"{c}\" stroke-width=\"1.4\"/>",
            y.place(0.0),
            c = colour(index)
        );
    }
    for tick in decades(low, high) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x.place(tick),
            HEIGHT - BOTTOM + 18.0,
            number(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" opacity=\"0.7\">{unit}</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 8.0
    );
    let names: Vec<&str> = all.iter().map(|d| d.key.device.as_str()).collect();
    svg.push_str(&legend(&names));
    svg.push_str("</svg>\n");
    Some(svg)
}

/// 1, 2 and 5 times the powers of ten between two values; over many decades the powers only.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|tick| *tick >= low && *tick <= high).collect()
}

/// One bar a label, its parts side by side.
pub(super) fn bars(bars: &Bars) -> String {
    const BAR: f64 = 26.0;
    const LABELS: f64 = 150.0;
    let mut parts: Vec<&str> = Vec::new();
    for (name, _) in bars.bars.iter().flat_map(|bar| &bar.1) {
        if !parts.contains(&name.as_str()) {
            parts.push(name);
        }
    }
    let height = TOP + (BAR + 10.0) * bars.bars.len() as f64 + 6.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"currentColor\" role=\"img\">\n"
    );
    let longest = bars.bars.iter().map(|bar| bar.1.iter().map(|p| p.1).sum::<f64>()).fold(1e-12, f64::max);
    for (row, (label, shares)) in bars.bars.iter().enumerate() {
        let y = TOP + (BAR + 10.0) * row as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LABELS - 8.0,
            y + BAR * 0.65,
            escape(label)
        );
        let mut x = LABELS;
        for (name, share) in shares.iter().filter(|(_, share)| share.is_finite() && *share > 0.0) {
            let width = share / longest * (WIDTH - LABELS - RIGHT);
            let index = parts.iter().position(|part| part == name).unwrap_or(0);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{}\">\
                 <title>{}: {:.1} %</title></rect>",
                colour(index),
                escape(name),
                share * 100.0
            );
            if width > 44.0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#fff\">{:.0} %</text>",
                    x + width / 2.0,
                    y + BAR * 0.65,
                    share * 100.0
                );
            }
            x += width;
        }
    }
    svg.push_str(&legend(&parts));
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64], reach: f64) -> Scale {
        Scale::of(values, reach, Unit::Microseconds, (0.0, 100.0))
    }

    #[test]
    fn every_figure_is_on_the_scale() {
        for values in [&[1.0, 2.0, 3.0][..], &[0.2, 1000.0], &[0.0, 5.0], &[0.0], &[7.0]] {
            let scale = scale(values, values.iter().copied().fold(0.0, f64::max));
            for value in values {
                let place = scale.place(*value);
                assert!((0.0..=100.0).contains(&place), "{value} of {values:?} at {place}");
                // Not merely clamped there.
                assert!(*value >= scale.low && *value <= scale.high, "{value} of {values:?}");
            }
            assert!(scale.ticks().len() >= 2, "{values:?}");
        }
    }

    #[test]
    fn a_long_interval_does_not_flatten_the_rest() {
        assert!(scale(&[1.0, 2.0], 1000.0).high < 4.0);
        assert!(scale(&[1.0, 2.0], 2.2).high >= 2.2);
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let places = [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0];
        let svg = Across::of(Some(Axis::Load), &places).labels(&places);
        let at: Vec<f64> =
            svg.split("<text x=\"").skip(1).filter_map(|s| s.split('"').next()?.parse().ok()).collect();
        // The last is the name of the axis.
        let labels = &at[..at.len() - 1];
        assert!(labels.len() > 4 && labels.windows(2).all(|pair| pair[1] - pair[0] >= LABEL), "{at:?}");
    }

    #[test]
    fn ticks_are_labelled_without_zeros() {
        assert_eq!([number(0.5), number(2.0), number(10_000.0), number(0.0)], ["0.5", "2", "10000", "0"]);
    }
}
