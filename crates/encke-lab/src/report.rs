//! Results as an HTML page: one file with inline plots, in light and dark, without scripts or external resources.

use std::fmt::Write as _;

use encke_stats::page::{self, escaped};

use crate::machine::Machine;
use crate::plot;
use crate::results::{ExperimentOutcome, Results};
use crate::rounds::RoundPace;
use crate::table;
use crate::texts::{Language, Words, filled};

/// Renders the page. `date` is shown as given.
pub fn page(
    outcomes: &[ExperimentOutcome],
    machine: &Machine,
    pace: &RoundPace,
    date: &str,
    language: Language,
) -> String {
    let words = language.words();
    let mut body = String::new();
    let _infallible = writeln!(
        body,
        "<header>\n<h1>{}</h1>\n<p>{}</p>\n<p class=\"quiet\">{} · Encke {} · {} · {}</p>",
        escaped(words.title),
        escaped(words.preface),
        escaped(date),
        escaped(&machine.encke),
        escaped(&machine.line(language)),
        escaped(&filled(words.seed, &[("seed", format!("{:#x}", pace.seed))])),
    );
    if !machine.optimised {
        let _infallible = writeln!(body, "<p class=\"warning\">{}</p>", escaped(words.not_optimised));
    }
    body += "<nav>";
    for outcome in outcomes {
        let name = outcome.results.design().name;
        let _infallible = write!(body, "<a href=\"#{name}\">{name}</a> ");
    }
    body += "</nav>\n</header>\n<main>\n";
    for outcome in outcomes {
        section(&mut body, outcome, language, words);
    }
    body += "</main>\n";
    page::page(words.tag, words.title, &body)
}

/// Renders one experiment.
fn section(page: &mut String, outcome: &ExperimentOutcome, language: Language, words: &Words) {
    let results = &outcome.results;
    let design = results.design();
    let Some(text) = language.text(design.name) else { return };
    let _infallible = writeln!(
        page,
        "<section id=\"{name}\">\n<h2><code>{name}</code> {}</h2>",
        escaped(text.title),
        name = design.name
    );
    for (head, paragraphs) in [(words.question, text.question), (words.expectation, text.expectation)] {
        let _infallible = writeln!(page, "<h3>{head}</h3>\n{}", paragraphs_of(paragraphs));
    }
    let _infallible =
        writeln!(page, "<h3>{}</h3>\n<p>{}</p>", words.seen, escaped(&table::told_of(results, language)));
    for difference in &outcome.differences {
        let _infallible = writeln!(page, "<p>{}</p>", escaped(&language.name(difference)));
    }
    *page += &plot::plots(results, language);
    cells(page, results, language);
    counts(page, results, words, language);
    let _infallible =
        writeln!(page, "<p class=\"quiet\">{}</p>\n<ul class=\"claims\">", escaped(words.reading));
    for (claim, said) in outcome.claims.iter().zip(text.claims) {
        let _infallible = writeln!(
            page,
            "<li><b>{}</b> {}<br><small>{}</small></li>",
            language.seen(claim.seen),
            escaped(said),
            escaped(&language.figure(&claim.figure, design))
        );
    }
    let _infallible =
        writeln!(page, "</ul>\n<h3>{}</h3>\n{}</section>", words.lesson, paragraphs_of(text.lesson));
}

/// Renders the table of all cells; a tooltip shows the verdict and the width of the interval.
fn cells(page: &mut String, results: &Results, language: Language) {
    let design = results.design();
    *page += "<div class=\"wide\"><table>\n<tr><th></th>";
    for load in &design.loads {
        let _infallible = write!(page, "<th>{}</th>", escaped(&language.name(&load.name)));
    }
    *page += "</tr>\n";
    for (index, row) in design.rows.iter().enumerate() {
        let _infallible = write!(page, "<tr><th>{}</th>", escaped(&language.name(&row.name)));
        for cell in results.cells().filter(|cell| cell.row == index) {
            let mut aside = table::facts_of(results, cell, language);
            if let Some(time) = results.judged(cell) {
                aside.push(format!("± {:.0} %", 100.0 * time.spread()));
            }
            let _infallible = write!(
                page,
                "<td title=\"{}\">{}</td>",
                escaped(&format!("{} {}", language.verdict(&results.verdict(cell)), aside.join(", "))),
                escaped(&table::shown(results, cell, language))
            );
        }
        *page += "</tr>\n";
    }
    *page += "</table></div>\n";
}

/// Renders the processor's counts, or the reason why there are none; nothing if they were not requested.
fn counts(page: &mut String, results: &Results, words: &Words, language: Language) {
    let design = results.design();
    let rows: Vec<Vec<String>> = results
        .cells()
        .filter_map(|cell| {
            let [row, load] = [&design.rows[cell.row].name, &design.loads[cell.load].name];
            let name = format!("{}, {}", language.name(row), language.name(load));
            let counts = results.counts(cell)?.map(|count| table::quantity(count.median));
            Some(std::iter::once(name).chain(counts).collect())
        })
        .collect();
    if !rows.is_empty() {
        *page += &format!(
            "<details><summary>{}</summary>\n{}</details>\n",
            escaped(&words.counted[1..].join(", ")),
            page::table(&words.counted, rows)
        );
    }
    if let Some(reason) = results.uncounted() {
        let (counted, reason) = (words.counted[1..].join(", "), language.name(reason));
        let _infallible =
            writeln!(page, "<p class=\"quiet\">– {}: {}</p>", escaped(&counted), escaped(&reason));
    }
}

/// Renders a text as paragraphs.
fn paragraphs_of(text: &str) -> String {
    text.split("\n\n").fold(String::new(), |page, paragraph| page + "<p>" + &escaped(paragraph) + "</p>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{self, StopHandle};
    use crate::{NAMES, open};

    /// Renders experiments that were stopped before they ran: all texts are present, and no external resource is used.
    #[test]
    fn a_page_needs_nothing_but_itself() {
        let pace = RoundPace::quick(1);
        let stop = StopHandle::new();
        stop.ask();
        let outcomes: Vec<ExperimentOutcome> = NAMES
            .iter()
            .map(|name| {
                let mut experiment = open(name, &pace).expect("a name of the list");
                let results = rounds::run(&mut *experiment, &pace, &stop);
                ExperimentOutcome::new(&*experiment, results)
            })
            .collect();
        let page = page(&outcomes, &Machine::look(), &pace, "2026-01-01T00:00:00Z", Language::English);
        for name in NAMES {
            assert!(page.contains(&format!("<section id=\"{name}\">")), "{name}");
        }
        for from_elsewhere in ["http:", "https:", "<script", "<link", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(from_elsewhere);
            assert!(!found, "{from_elsewhere}");
        }
        assert_eq!(page.matches("<table>").count(), NAMES.len());
        assert_eq!(page.matches('<').count(), page.matches('>').count(), "what is text is escaped");
    }
}
