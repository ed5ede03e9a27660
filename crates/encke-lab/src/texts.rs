//! Every word that the laboratory says to people, by language: to add one, add a table like `texts/english.rs`.

mod english;

/// What an experiment says of itself. Paragraphs are apart by an empty line.
pub struct Text {
    /// Its name on the command line.
    pub name: &'static str,
    /// A headline.
    pub title: &'static str,
    /// What is asked, and by which report.
    pub question: &'static str,
    /// What is done, and what is to be expected.
    pub expectation: &'static str,
    /// What to take home.
    pub lesson: &'static str,
    /// What must be seen: in the order in which the experiment answers.
    pub claims: &'static [&'static str],
}

/// The words around the experiments.
pub struct Words {
    /// The language's tag (RFC 5646), for the page.
    pub tag: &'static str,
    /// The page's title.
    pub title: &'static str,
    /// What the page is.
    pub preface: &'static str,
    /// How to read its tables.
    pub reading: &'static str,
    /// Heads of sections.
    pub question: &'static str,
    /// Heads of sections.
    pub expectation: &'static str,
    /// Heads of sections.
    pub seen: &'static str,
    /// Heads of sections.
    pub lesson: &'static str,
    /// Of a claim.
    pub yes: &'static str,
    /// Of a claim.
    pub no: &'static str,
    /// Of a claim.
    pub unclear: &'static str,
    /// Of a table.
    pub no_difference: &'static str,
    /// Said if the program was not compiled to be quick.
    pub not_optimised: &'static str,
    /// All experiments.
    pub experiments: &'static [Text],
}

/// A language of the laboratory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Language {
    /// English.
    #[default]
    English,
}

impl Language {
    /// Its words.
    pub const fn words(self) -> &'static Words {
        match self {
            Self::English => &english::WORDS,
        }
    }

    /// What it says of an experiment.
    pub fn text(self, name: &str) -> Option<&'static Text> {
        self.words().experiments.iter().find(|text| text.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NAMES, Outcome, Pace, Stop, open, rounds};

    #[test]
    fn every_experiment_has_a_text_and_answers_each_of_its_claims() {
        let pace = Pace { rounds: 0, batch_ns: 0, ..Pace::quick(1) };
        let stop = Stop::new();
        stop.ask();
        for name in NAMES {
            let mut experiment = open(name, &pace).expect("a name of the list");
            assert_eq!(experiment.design().name, name);
            let results = rounds::run(&mut *experiment, &pace, &stop);
            let outcome = Outcome::new(&*experiment, results);
            let text = Language::English.text(name).expect(name);
            assert_eq!(outcome.claims.len(), text.claims.len(), "{name}");
        }
        assert_eq!(Language::English.words().experiments.len(), NAMES.len());
    }
}
