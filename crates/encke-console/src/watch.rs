//! Queries of lists, and the watches of a live page.

use encke_server::{CodedText, TailFilter};
use encke_settings::Network;
use encke_stats::{Query, Sort};
use encke_wire::target::query_pairs;

use crate::problem::ApiProblem;

/// Rows of a list, unless `limit` is given.
const ROWS: usize = 100;
/// Maximum number of rows. A row of a connection takes about 400 bytes.
const ROWS_MAX: usize = 1000;

/// One subject of a live page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Watch {
    /// The figures of the overview.
    Overview,
    /// The rows of a list, by its name.
    List(String, Query),
    /// New entries of the access log.
    Log(TailFilter),
    /// The last lines of standard error.
    Notices,
    /// The whole status, without a name of the event: what `/api/v1/live` sent before there were watches.
    Status,
}

impl Watch {
    /// Parses a watch: `overview`, `lists/NAME?QUERY`, `log?QUERY`, `notices`.
    ///
    /// # Errors
    /// The invalid part.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiProblem> {
        let (subject, query) = text.split_once('?').unwrap_or((text, ""));
        let pairs =
            || query_pairs(query.as_bytes()).map(|(key, value)| (key.into_owned(), value.into_owned()));
        match subject {
            "overview" | "notices" if !query.is_empty() => {
                Err(ApiProblem::new(400, format!("watch: `{subject}` has no parameters")))
            }
            "overview" => Ok(Self::Overview),
            "notices" => Ok(Self::Notices),
            "log" => Ok(Self::Log(tail_filter(pairs())?)),
            _ => match subject.strip_prefix("lists/") {
                Some(name) if !name.is_empty() => Ok(Self::List(name.to_owned(), list_query(pairs())?)),
                _ => Err(ApiProblem::new(
                    400,
                    format!("watch: `{subject}` is unknown; choose overview, lists/NAME?…, log?… or notices"),
                )),
            },
        }
    }
}

/// Reads the query of a list. Parameters other than `filter`, `sort` and `limit` are columns with their exact text.
///
/// # Errors
/// The invalid parameter.
pub(crate) fn list_query(pairs: impl Iterator<Item = (String, String)>) -> Result<Query, ApiProblem> {
    let mut query = Query { limit: ROWS, ..Query::default() };
    for (key, value) in pairs {
        match &*key {
            "filter" => query.filter = Some(value).filter(|text| !text.is_empty()),
            "sort" => {
                let (column, descending) =
                    value.strip_prefix('-').map_or((&*value, false), |rest| (rest, true));
                query.sort = Some(Sort { column: column.to_owned(), descending });
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=ROWS_MAX).contains(limit));
                query.limit = limit.ok_or_else(|| {
                    ApiProblem::new(400, format!("limit: `{value}` is not a number from 1 to {ROWS_MAX}"))
                })?;
            }
            _ => query.whole.push((key, value)),
        }
    }
    Ok(query)
}

/// Checks that a list has all columns of a query.
///
/// # Errors
/// The unknown column, and the columns of the list.
pub(crate) fn check_columns(query: &Query, columns: &[&str]) -> Result<(), ApiProblem> {
    let sorted = query.sort.iter().map(|sort| &sort.column);
    let mut named = query.whole.iter().map(|(column, _)| column).chain(sorted);
    match named.find(|column| !columns.contains(&column.as_str())) {
        Some(unknown) => {
            let text = format!("the list has no column `{unknown}`; its columns are {}", columns.join(", "));
            Err(ApiProblem::new(400, text))
        }
        None => Ok(()),
    }
}

fn tail_filter(pairs: impl Iterator<Item = (String, String)>) -> Result<TailFilter, ApiProblem> {
    let mut filter = TailFilter::default();
    for (key, value) in pairs {
        if value.is_empty() {
            continue;
        }
        match &*key {
            "status" => {
                let class = value.parse().ok().filter(|class| (1..=5).contains(class));
                filter.status_class = Some(class.ok_or_else(|| {
                    ApiProblem::new(
                        400,
                        format!("status: `{value}` is not the first digit of a status, 1 to 5"),
                    )
                })?);
            }
            "path" => filter.path_prefix = Some(value),
            "text" => filter.text = Some(value),
            "address" => {
                let network = value.parse::<Network>().map_err(|error| {
                    let text = CodedText::new("filter_address", "address: {error}");
                    ApiProblem::new(400, text.with("error", error))
                })?;
                filter.client = Some(network);
            }
            other => return Err(ApiProblem::new(400, format!("log: the parameter `{other}` is unknown"))),
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_names_its_subject_and_query() {
        assert_eq!(Watch::parse("overview"), Ok(Watch::Overview));
        assert_eq!(Watch::parse("notices"), Ok(Watch::Notices));
        let list = Watch::parse("lists/connections?sort=-age_s&limit=5&filter=a%20b&state=idle");
        let query = Query {
            filter: Some("a b".into()),
            whole: vec![("state".into(), "idle".into())],
            sort: Some(Sort { column: "age_s".into(), descending: true }),
            limit: 5,
        };
        assert_eq!(list, Ok(Watch::List("connections".into(), query)));
        let log = Watch::parse("log?status=5&path=/a&address=192.0.2.0/24&text=");
        let filter = TailFilter {
            status_class: Some(5),
            path_prefix: Some("/a".into()),
            text: None,
            client: Some("192.0.2.0/24".parse().expect("a network")),
        };
        assert_eq!(log, Ok(Watch::Log(filter)));
    }

    #[test]
    fn an_invalid_watch_names_its_wrong_part() {
        for (watch, part) in [
            ("", "``"),
            ("lists/", "`lists/`"),
            ("overview?a=b", "no parameters"),
            ("lists/connections?limit=0", "limit"),
            ("lists/connections?limit=1001", "limit"),
            ("log?status=6", "status"),
            ("log?status=55", "status"),
            ("log?address=somewhere", "address"),
            ("log?user=ann", "`user`"),
        ] {
            let problem = Watch::parse(watch).expect_err(watch).json();
            assert!(problem["detail"].as_str().is_some_and(|text| text.contains(part)), "{watch}: {problem}");
        }
    }

    #[test]
    fn the_columns_of_a_query_must_exist() {
        let query = |text: &str| match Watch::parse(text) {
            Ok(Watch::List(_, query)) => query,
            other => panic!("{other:?}"),
        };
        let columns = ["id", "state"];
        assert_eq!(check_columns(&query("lists/x?sort=-state&id=7"), &columns), Ok(()));
        for wrong in ["lists/x?sort=age", "lists/x?age=7"] {
            assert!(check_columns(&query(wrong), &columns).is_err(), "{wrong}");
        }
    }
}
