//! A self-contained HTML page: styles inline, light and dark, no external resources, no script.

use std::fmt::{Display, Write as _};

const STYLE: &str = include_str!("page.css");

/// Returns an HTML page. `language` is a tag such as `en`, `title` is text, `body` is HTML.
pub fn page(language: &str, title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"{language}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n\
         </html>\n",
        escaped(title)
    )
}

/// Escapes text for HTML and its attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns an HTML table with the column names `head`. Names and cells are text, and are escaped.
pub fn table<Cell: Display>(head: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let mut table = String::from("<div class=\"wide\"><table>\n<tr>");
    for name in head {
        let _infallible = write!(table, "<th>{}</th>", escaped(name));
    }
    table.push_str("</tr>\n");
    for row in rows {
        table.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let (open, close) = if column == 0 { ("<th>", "</th>") } else { ("<td>", "</td>") };
            let _infallible = write!(table, "{open}{}{close}", escaped(&cell.to_string()));
        }
        table.push_str("</tr>\n");
    }
    table + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text_stays_text() {
        let table = table(&["<b>"], [vec!["a & b", "\"c\""]]);
        assert!(
            table.contains("<th>&lt;b&gt;</th>")
                && table.contains("<th>a &amp; b</th><td>&quot;c&quot;</td>")
        );
        let page = page("en", "</title><script>", &table);
        assert!(!page.contains("<script") && page.contains("&lt;/title&gt;"));
    }

    #[test]
    fn a_page_needs_nothing_but_itself() {
        let page = page("en", "title", "");
        for from_elsewhere in ["http:", "https:", "<script", "@import", "url("] {
            assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
        }
    }
}
