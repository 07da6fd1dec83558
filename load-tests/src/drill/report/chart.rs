//! Charts as SVG, drawn with plotters.

use plotters::prelude::*;

/// A curve of a chart.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) color: RGBColor,
    /// The one that the chart is about.
    pub(super) strong: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart over time.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    pub(super) curves: Vec<Curve>,
    /// A line across, such as a capacity.
    pub(super) limit: Option<(&'a str, f64)>,
    /// The time of the trouble.
    pub(super) trouble: (f64, f64),
    pub(super) size: (u32, u32),
}

/// What cannot happen to a drawing in memory.
type Drawing<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

const FONT: (&str, u32) = ("sans-serif", 13);
const TROUBLE: RGBColor = RGBColor(252, 238, 220);
const LIMIT: RGBColor = RGBColor(90, 90, 90);

impl Chart<'_> {
    /// The chart as an SVG document.
    pub(super) fn svg(&self) -> String {
        let mut text = String::new();
        let drawn = draw(self, &SVGBackend::with_string(&mut text, self.size).into_drawing_area());
        debug_assert!(drawn.is_ok(), "{drawn:?}");
        text
    }

    fn end(&self) -> f64 {
        let times = self.curves.iter().flat_map(|curve| &curve.points).map(|(at, _)| *at);
        times.fold(1.0, f64::max)
    }

    fn top(&self) -> f64 {
        let values = self.curves.iter().flat_map(|curve| &curve.points).map(|(_, value)| *value);
        let limit = self.limit.map_or(0.0, |(_, limit)| limit);
        let highest = values.fold(0.0, f64::max);
        // A capacity far above everything would press the curves onto the axis.
        1.08 * if limit > 3.0 * highest { highest } else { highest.max(limit) }.max(0.01)
    }
}

fn draw(chart: &Chart<'_>, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawing<()> {
    area.fill(&WHITE)?;
    let (end, top) = (chart.end(), chart.top());
    let mut context = ChartBuilder::on(area)
        .caption(chart.title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    let (from, until) = chart.trouble;
    context.draw_series([Rectangle::new([(from, 0.0), (until.min(end), top)], TROUBLE.filled())])?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc("seconds")
        .y_desc(chart.unit)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .draw()?;
    if let Some((name, limit)) = chart.limit.filter(|(_, limit)| *limit <= top) {
        let line = LineSeries::new([(0.0, limit), (end, limit)], LIMIT.stroke_width(1));
        context.draw_series(line)?.label(name).legend(|(x, y)| key(x, y, LIMIT, 1));
    }
    for curve in &chart.curves {
        let (color, width) = (curve.color, if curve.strong { 3 } else { 1 });
        let line = LineSeries::new(curve.points.iter().copied(), color.stroke_width(width));
        context.draw_series(line)?.label(&curve.name).legend(move |(x, y)| key(x, y, color, width));
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(225, 225, 225))
        .label_font(FONT)
        .draw()?;
    area.present()
}

fn key(x: i32, y: i32, color: RGBColor, width: u32) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_drawn_even_of_nothing() {
        let empty = Chart {
            title: "t",
            unit: "u",
            curves: vec![],
            limit: Some(("capacity", 100.0)),
            trouble: (5.0, 1e9),
            size: (400, 300),
        };
        assert!(empty.svg().contains("<svg") && empty.svg().trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_capacity_out_of_sight_is_left_out() {
        let curve =
            |value| Curve { name: "c".to_owned(), color: BLACK, strong: true, points: vec![(0.0, value)] };
        let with = |value| Chart {
            title: "t",
            unit: "u",
            curves: vec![curve(value)],
            limit: Some(("the capacity", 100.0)),
            trouble: (0.0, 0.0),
            size: (400, 300),
        };
        assert!(with(50.0).svg().contains("the capacity"));
        assert!(!with(5.0).svg().contains("the capacity"));
    }
}
