//! Plots as SVG text: curves with intervals, distributions, bars.
//!
//! Invariant: a plot shows the same figures as the table beside it. A figure that is not finite is left out,
//! never drawn at another place.

use super::{Axis, Bars, CONFIDENCE, Distribution, Series, Unit, statistics::Estimate};
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (680, 320);
const FONT: (&str, u32) = ("sans-serif", 13);
/// The left edge of the plotting area.
const LEFT: i32 = 66;

/// Colours that colour-blind readers can distinguish: M. Okabe and K. Ito, "Color Universal Design" (2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0xb8, 0xa8, 0x00),
];

/// Why a plot could not be drawn.
pub(super) type Error = DrawingAreaErrorKind<std::io::Error>;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Draws into an SVG of this size.
fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), Error>) -> Result<String, Error> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    Ok(text)
}

/// The height of a legend.
const LEGEND: i32 = 22;

/// Draws the names beside their colours, starting at `left`.
fn legend(area: &Area<'_>, left: i32, names: &[&str]) -> Result<(), Error> {
    let style = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Left, VPos::Center));
    let mut x = left;
    for (index, name) in names.iter().enumerate() {
        area.draw(&Rectangle::new([(x, 5), (x + 11, 16)], colour(index).filled()))?;
        area.draw(&Text::new(*name, (x + 16, 11), style.clone()))?;
        x += 32 + 7 * name.chars().count() as i32;
    }
    Ok(())
}

/// A tick's label without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{:.*}", if value.abs() >= 1e4 { 0 } else { 6 }, value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Names in the order of their first appearance.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
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
}

/// The range of the y axis.
struct Height {
    low: f64,
    high: f64,
    log: bool,
}

impl Height {
    /// The y axis begins at zero, or is logarithmic where the figures span more than a linear axis can show. A long
    /// interval is cut at the frame, so that it does not compress the rest of the plot.
    fn of(points: &[Point<'_>]) -> Self {
        let values = || points.iter().map(|point| point.value);
        let most = values().fold(0.0, f64::max);
        let reach = points.iter().map(|point| point.high).fold(0.0, f64::max);
        let high = reach.clamp(most, most * 1.5);
        let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        let fraction = points.first().is_some_and(|point| point.unit == Unit::Fraction);
        let log = least.is_finite() && most / least > 50.0 && !values().any(|v| v == 0.0) && !fraction;
        match (log, high > 0.0) {
            (true, _) => {
                Self { low: 10f64.powf(least.log10().floor()), high: 10f64.powf(high.log10().ceil()), log }
            }
            (false, true) => Self { low: 0.0, high: high * 1.08, log },
            (false, false) => Self { low: 0.0, high: 1.0, log },
        }
    }
}

/// The places along the x axis. Loads are drawn to scale; all other places are drawn at equal distances, as in the
/// RFCs' graphs.
struct Across {
    axis: Option<Axis>,
    places: Vec<f64>,
}

impl Across {
    fn of(points: &[Point<'_>], devices: usize) -> Self {
        let axis = points.first().and_then(|point| point.axis);
        let mut places: Vec<f64> = match axis {
            Some(_) => points.iter().map(|point| point.at).collect(),
            // One column per device.
            None => (0..devices).map(|index| index as f64).collect(),
        };
        places.sort_by(f64::total_cmp);
        places.dedup();
        Self { axis, places }
    }

    fn is_continuous(&self) -> bool {
        self.axis == Some(Axis::Load) && self.places.len() > 1
    }

    fn place(&self, at: f64) -> f64 {
        match self.is_continuous() {
            true => at,
            false => self.places.iter().position(|place| *place == at).unwrap_or(0) as f64,
        }
    }

    fn range(&self) -> std::ops::Range<f64> {
        match (self.is_continuous(), self.places.first(), self.places.last()) {
            (true, Some(first), Some(last)) => {
                let margin = (last - first) * 0.04;
                first - margin..last + margin
            }
            _ => -0.5..self.places.len().max(1) as f64 - 0.5,
        }
    }

    fn label(&self, x: f64, devices: &[&str]) -> String {
        if self.is_continuous() {
            return Axis::Load.show(x);
        }
        let index = x.round();
        if (x - index).abs() > 1e-6 || index < 0.0 {
            return String::new();
        }
        match self.axis {
            None => devices.get(index as usize).map_or_else(String::new, |name| (*name).to_owned()),
            Some(axis) => self.places.get(index as usize).map_or_else(String::new, |place| match axis {
                Axis::Load => axis.show(*place),
                _ => number(*place),
            }),
        }
    }

    fn name(&self) -> &'static str {
        match self.axis {
            Some(Axis::FrameBytes) => "frame size, bytes",
            Some(other) => other.name(),
            None => "",
        }
    }
}

/// One curve per device over the places of the group's axis, with the interval of each figure. A group without an axis
/// is one column per device. `None` when there is nothing to draw.
pub(super) fn curves(group: &[&Series]) -> Result<Option<String>, Error> {
    let points: Vec<Point> = group.iter().filter_map(|series| Point::of(series)).collect();
    let Some(first) = points.first() else { return Ok(None) };
    let devices = distinct(points.iter().map(|point| point.device));
    let height = Height::of(&points);
    let across = Across::of(&points, devices.len());
    let unit = first.unit.scale().0;
    svg(SIZE, |area| {
        let (top, below) = area.split_vertically(LEGEND);
        if across.axis.is_some() {
            legend(&top, LEFT, &devices)?;
        }
        let mut builder = ChartBuilder::on(&below);
        builder.margin(8).x_label_area_size(38).y_label_area_size(58);
        if height.log {
            let range = (height.low..height.high).log_scale();
            draw_curves(builder.build_cartesian_2d(across.range(), range)?, &points, &devices, &across, unit)
        } else {
            let range = height.low..height.high;
            draw_curves(builder.build_cartesian_2d(across.range(), range)?, &points, &devices, &across, unit)
        }
    })
    .map(Some)
}

fn draw_curves<'a, 'b: 'a, Y>(
    mut chart: Chart<'a, 'b, Y>,
    points: &[Point<'_>],
    devices: &[&str],
    across: &Across,
    unit: &str,
) -> Result<(), Error>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(if across.is_continuous() { 8 } else { 2 * across.places.len() + 1 })
        .x_label_formatter(&|x| across.label(*x, devices))
        .y_label_formatter(&|y| number(*y))
        .x_desc(across.name())
        .y_desc(unit)
        .label_style(FONT)
        .draw()?;
    for (index, device) in devices.iter().enumerate() {
        let style = colour(index);
        let mut line: Vec<&Point> = points.iter().filter(|point| point.device == *device).collect();
        line.sort_by(|a, b| a.at.total_cmp(&b.at));
        let x = |point: &Point| match across.axis {
            Some(_) => across.place(point.at),
            None => index as f64,
        };
        if across.axis.is_some() {
            let path = line.iter().map(|point| (x(point), point.value));
            chart.draw_series(LineSeries::new(path, style.stroke_width(2)))?;
        } else {
            let column = |point: &&Point| {
                let corners = [(x(point) - 0.3, 0.0), (x(point) + 0.3, point.value)];
                Rectangle::new(corners, style.mix(0.75).filled())
            };
            chart.draw_series(line.iter().map(column))?;
        }
        let interval =
            |point: &&Point| PathElement::new([(x(point), point.low), (x(point), point.high)], style);
        chart.draw_series(line.iter().map(interval))?;
        let mark = |point: &&Point| Circle::new((x(point), point.value), 3, style.filled());
        chart.draw_series(line.iter().map(mark))?;
    }
    Ok(())
}

/// Distributions over each other: the share of samples by value, on a logarithmic axis. `None` without samples.
pub(super) fn distributions(all: &[&Distribution]) -> Result<Option<String>, Error> {
    let Some((unit, divisor)) = all.first().map(|first| first.unit.scale()) else { return Ok(None) };
    let values = || all.iter().flat_map(|d| &d.buckets).map(|b| b.0).filter(|v| *v > 0.0 && v.is_finite());
    let (Some(least), Some(most)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return Ok(None);
    };
    let (low, high) = (least / divisor / 1.2, most / divisor * 1.2);
    let devices: Vec<&str> = all.iter().map(|d| d.key.device.as_str()).collect();
    let shares: Vec<Vec<(f64, f64)>> = all.iter().map(|d| binned(d, divisor, low, high)).collect();
    let top = shares.iter().flatten().map(|bin| bin.1).fold(0.1, f64::max) * 1.08;
    svg(SIZE, |area| {
        let (top_area, below) = area.split_vertically(LEGEND);
        legend(&top_area, LEFT, &devices)?;
        let mut builder = ChartBuilder::on(&below);
        builder.margin(8).x_label_area_size(38).y_label_area_size(58);
        let mut chart = builder.build_cartesian_2d((low..high).log_scale(), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|x| number(*x))
            .y_label_formatter(&|y| number(*y))
            .x_desc(unit)
            .y_desc("% of frames")
            .label_style(FONT)
            .draw()?;
        for (index, bins) in shares.iter().enumerate() {
            let style = colour(index);
            let steps = bins.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
            let area = AreaSeries::new(steps, 0.0, style.mix(0.2)).border_style(style.stroke_width(1));
            chart.draw_series(area)?;
        }
        Ok(())
    })
    .map(Some)
}

/// The left edges of logarithmic bins and the percentage of samples in each, closed by an empty bin at `high`.
fn binned(distribution: &Distribution, divisor: f64, low: f64, high: f64) -> Vec<(f64, f64)> {
    const BINS: usize = 120;
    /// Half of a bucket of `histogram`, as a part of its value.
    const BUCKET_HALF: f64 = 1.0 / 64.0;
    let samples: u64 = distribution.buckets.iter().map(|bucket| bucket.1).sum();
    let mut bins = vec![0.0; BINS];
    let position = |value: f64| (value / divisor / low).ln() / (high / low).ln() * BINS as f64;
    for (value, count) in distribution.buckets.iter().filter(|bucket| bucket.0 > 0.0) {
        // The samples of a bucket are spread over the bins that the bucket covers.
        let (begin, end) = (position(value * (1.0 - BUCKET_HALF)), position(value * (1.0 + BUCKET_HALF)));
        let width = (end - begin).max(1e-9);
        let share = *count as f64 / samples.max(1) as f64 * 100.0;
        for (index, bin) in bins.iter_mut().enumerate().skip(begin as usize).take(width as usize + 2) {
            let covered = (end.min(index as f64 + 1.0) - begin.max(index as f64)).max(0.0);
            *bin += share * covered / width;
        }
    }
    let edge = |index: usize| low * (high / low).powf(index as f64 / BINS as f64);
    bins.into_iter().chain([0.0]).enumerate().map(|(index, share)| (edge(index), share)).collect()
}

/// One bar per label, its parts side by side, with a legend below.
pub(super) fn bars(bars: &Bars) -> Result<Option<String>, Error> {
    const BAR: i32 = 26;
    const GAP: i32 = 10;
    const LABELS: i32 = 150;
    let parts = distinct(bars.bars.iter().flat_map(|bar| &bar.1).map(|part| part.0.as_str()));
    let longest = bars.bars.iter().map(|bar| bar.1.iter().map(|p| p.1).sum::<f64>()).fold(0.0, f64::max);
    if longest <= 0.0 {
        return Ok(None);
    }
    let bottom = (BAR + GAP) * bars.bars.len() as i32;
    let scale = f64::from(SIZE.0 as i32 - LABELS - 8) / longest;
    let style = TextStyle::from(FONT.into_font()).pos(Pos::new(HPos::Right, VPos::Center));
    svg((SIZE.0, (bottom + LEGEND) as u32), |area| {
        for (row, (label, shares)) in bars.bars.iter().enumerate() {
            let top = (BAR + GAP) * row as i32 + GAP / 2;
            area.draw(&Text::new(label.as_str(), (LABELS - 8, top + BAR / 2), style.clone()))?;
            let mut from = 0.0;
            for (name, share) in shares {
                let index = parts.iter().position(|part| part == name).unwrap_or(0);
                let x = |share: f64| LABELS + (share * scale).round() as i32;
                let corners = [(x(from), top), (x(from + share), top + BAR)];
                area.draw(&Rectangle::new(corners, colour(index).filled()))?;
                from += share;
            }
        }
        legend(&area.split_vertically(bottom).1, LABELS, &parts)
    })
    .map(Some)
}
