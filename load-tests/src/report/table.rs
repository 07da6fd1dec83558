//! The closing table: all ways side by side.

use super::Report;
use super::text::{number, percent};
use crate::measure::{Span, expected_amplification};
use crate::scenario::Measure;
use crate::storm::Run;

type Row = (&'static str, Vec<String>);

/// The closing table.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut rows = vec![("", report.runs.iter().map(|run| run.way.as_str().to_owned()).collect())];
    rows.extend(rows_of(report));
    render(&rows)
}

fn rows_of(report: &Report) -> Vec<Row> {
    let spans: Vec<(&Run, Span<'_>)> =
        report.runs.iter().map(|run| (run, Span::of_run(&run.seconds, run.arriving))).collect();
    let cells = |cell: &dyn Fn(&Run, &Span<'_>) -> String| -> Vec<String> {
        spans.iter().map(|(run, span)| cell(run, span)).collect()
    };
    let value = |span: &Span<'_>, measure| span.reading(measure).map(|reading| reading.value);
    let rate = |measure| cells(&|_, span| number(value(span, measure), 2));
    let share = |measure| cells(&|_, span| percent(value(span, measure), 1));
    let expected = |run: &Run, _: &Span<'_>| {
        let seconds = &run.seconds;
        number(expected_amplification(seconds, &report.scenario.dependency, run.max_attempts), 3)
    };
    vec![
        ("operations offered /s", rate(Measure::OfferedPerS)),
        ("attempts at the dependency /s", rate(Measure::PhysicalPerS)),
        ("retries wanted /s", rate(Measure::WantedPerS)),
        ("retries executed /s", rate(Measure::ExecutedPerS)),
        ("  in the worst second", cells(&|_, span| number(value(span, Measure::ExecutedWorstS), 0))),
        ("retries executed", cells(&|_, span| span.total().executed().to_string())),
        ("  of these delayed", cells(&|_, span| span.total().delayed.to_string())),
        ("retries expired", cells(&|_, span| span.total().expired.to_string())),
        ("retries shed", cells(&|_, span| span.total().shed.to_string())),
        ("amplification observed", cells(&|_, span| number(value(span, Measure::Amplification), 3))),
        ("  expected from the cause", cells(&expected)),
        ("first attempts that succeed", share(Measure::FirstSuccess)),
        ("operations that succeed", share(Measure::OperationSuccess)),
        ("  that sent no attempt", cells(&|_, span| span.total().unsent.to_string())),
        ("recovered of those affected", share(Measure::RecoveryRate)),
        ("attempts that fail", share(Measure::ErrorShare)),
        ("  in the worst five seconds", share(Measure::ErrorShareWorst)),
        ("  for another reason than the cause", share(Measure::InflictedShare)),
        ("answers that came too late", cells(&|_, span| span.total().abandoned.to_string())),
    ]
}

/// Aligns labels left and figures right.
fn render(rows: &[Row]) -> String {
    let width =
        |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let label = width(&mut rows.iter().map(|(label, _)| *label));
    let cell = width(&mut rows.iter().flat_map(|(_, cells)| cells).map(String::as_str));
    let mut lines = String::new();
    for (name, cells) in rows {
        let mut line = format!("{name:<label$}");
        for text in cells {
            line.push_str(&format!("   {text:>cell$}"));
        }
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_whatever_their_width() {
        let rows = [
            ("", vec!["none".to_owned(), "local".to_owned()]),
            ("retries /s", vec!["0.00".to_owned(), "12345.67".to_owned()]),
        ];
        assert_eq!(render(&rows), "                 none      local\nretries /s       0.00   12345.67\n");
    }
}
