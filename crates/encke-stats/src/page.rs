//! A page to hand out: one file of HTML with its style within, light and dark, nothing fetched, no script.

use std::fmt::{Display, Write as _};

const STYLE: &str = include_str!("page.css");

/// The page: `body` is HTML, `title` is text, `language` a tag such as `en`.
pub fn page(language: &str, title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"{language}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n\
         </html>\n",
        escaped(title)
    )
}

/// Text as it may stand in HTML and in its attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A table: what stands above its columns, and its rows. All of it is text.
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
