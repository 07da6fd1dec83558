//! The few marks that the picture is made of.

use std::fmt::Write as _;

use crate::units::whole;

/// An SVG document in the making.
pub(super) struct Canvas(String);

/// A chart's place on the canvas, and the figures at its far ends; both axes start at zero.
#[derive(Clone, Copy)]
pub(super) struct Chart {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x_max: f64,
    pub(super) y_max: f64,
}

impl Chart {
    /// Where figures lie on the canvas, no further out than the chart's edges.
    pub(super) fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let across = (x / self.x_max).clamp(0.0, 1.0);
        let up = (y / self.y_max).clamp(0.0, 1.0);
        (self.left + self.width * across, self.top + self.height * (1.0 - up))
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

impl Canvas {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let title = escape(title);
        let font = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"{font}\" role=\"img\">\n<title>{title}</title>\n"
        ))
    }

    pub(super) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: &str, colour: &str, size: u32, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" font-size=\"{size}\">{text}</text>"
        ));
    }

    pub(super) fn curve(&mut self, chart: &Chart, points: &[(f64, f64)], colour: &str) {
        let path = path(chart, points);
        self.add(format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
    }

    pub(super) fn dashes(&mut self, chart: &Chart, points: &[(f64, f64)], colour: &str) {
        let path = path(chart, points);
        self.add(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"5 4\"/>"
        ));
    }

    /// A curve, and the area under it in a hint of its colour.
    pub(super) fn area(&mut self, chart: &Chart, points: &[(f64, f64)], colour: &str) {
        if let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) {
            let outline = path(chart, points);
            let (from, to) = (chart.place(*first, 0.0), chart.place(*last, 0.0));
            self.add(format_args!(
                "<path d=\"{outline}L{:.1} {:.1}L{:.1} {:.1}Z\" fill=\"{colour}\" fill-opacity=\"0.18\"/>",
                to.0, to.1, from.0, from.1
            ));
        }
        self.curve(chart, points, colour);
    }

    pub(super) fn band(&mut self, chart: &Chart, from: f64, until: f64, colour: &str) {
        let ((left, top), (right, _)) = (chart.place(from, chart.y_max), chart.place(until, 0.0));
        let (width, height) = (right - left, chart.height);
        self.add(format_args!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" \
             fill-opacity=\"0.12\"/>"
        ));
    }

    pub(super) fn rule(&mut self, chart: &Chart, value: f64, colour: &str) {
        let (x, y) = chart.place(0.0, value);
        let right = x + chart.width;
        self.add(format_args!(
            "<path d=\"M{x:.1} {y:.1}H{right:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.35\"/>"
        ));
    }

    pub(super) fn label_y(&mut self, chart: &Chart, value: f64, colour: &str) {
        let (x, y) = chart.place(0.0, value);
        self.text(x - 8.0, y + 4.0, "end", colour, 11, &whole(value).to_string());
    }

    pub(super) fn label_x(&mut self, chart: &Chart, second: f64, colour: &str) {
        let (x, _) = chart.place(second, 0.0);
        self.text(x, chart.bottom() + 16.0, "middle", colour, 11, &format!("{} s", whole(second)));
    }

    pub(super) fn swatch(&mut self, x: f64, y: f64, colour: &str, dashed: bool) {
        let dashes = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let (y, right) = (y - 4.0, x + 22.0);
        self.add(format_args!(
            "<path d=\"M{x:.1} {y:.1}H{right:.1}\" stroke=\"{colour}\" stroke-width=\"2.5\"{dashes}/>"
        ));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{element}");
    }
}

fn path(chart: &Chart, points: &[(f64, f64)]) -> String {
    points.iter().enumerate().fold(String::new(), |mut path, (index, (x, y))| {
        let (x, y) = chart.place(*x, *y);
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        path
    })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
