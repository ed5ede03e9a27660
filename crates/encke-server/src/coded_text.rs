//! Texts for operators that a page can show in another language.

use std::borrow::Cow;
use std::fmt;

/// An English text for operators, with a code and parameters by which a page shows it in another language.
///
/// ```
/// # use encke_server::CodedText;
/// let text = CodedText::new("full", "the limit of {n} rooms is reached").with("n", 5);
/// assert_eq!(text.to_string(), "the limit of 5 rooms is reached");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodedText {
    /// Empty for a text without a code.
    code: &'static str,
    template: Cow<'static, str>,
    params: Vec<(&'static str, String)>,
}

impl CodedText {
    /// Creates a text. `{name}` in `template` stands for the parameter of that name. Codes are unique among all crates, and have
    /// lower-case letters and underscores.
    pub fn new(code: &'static str, template: &'static str) -> Self {
        Self { code, template: template.into(), params: Vec::new() }
    }

    /// Sets a parameter.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.params.push((name, value.to_string()));
        self
    }

    /// Returns the code; `None` for a text that exists in English only.
    pub fn code(&self) -> Option<&'static str> {
        (!self.code.is_empty()).then_some(self.code)
    }

    /// Returns the parameters.
    pub fn params(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.params.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// A text that exists in English only.
impl<T: Into<Cow<'static, str>>> From<T> for CodedText {
    fn from(text: T) -> Self {
        Self { code: "", template: text.into(), params: Vec::new() }
    }
}

/// The English text.
impl fmt::Display for CodedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &*self.template;
        // A text without a code may have braces of its own.
        while let Some((before, name, after)) = first_name(rest).filter(|_| !self.code.is_empty()) {
            f.write_str(before)?;
            match self.params.iter().find(|(known, _)| *known == name) {
                Some((_, value)) => f.write_str(value)?,
                None => write!(f, "{{{name}}}")?,
            }
            rest = after;
        }
        f.write_str(rest)
    }
}

/// Returns the first name in braces, and the texts before and after it.
fn first_name(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_replace_their_names_and_are_not_parsed_themselves() {
        let text = CodedText::new("x", "{one}, {two}: {three}").with("one", "{two}").with("two", 2);
        assert_eq!(text.to_string(), "{two}, 2: {three}");
        assert_eq!(text.code(), Some("x"));
        assert_eq!(text.params().collect::<Vec<_>>(), [("one", "{two}"), ("two", "2")]);
    }

    #[test]
    fn a_text_without_a_code_is_shown_as_it_is() {
        let text = CodedText::from("expected {\"token\"} or }{".to_owned());
        assert_eq!((text.to_string().as_str(), text.code()), ("expected {\"token\"} or }{", None));
    }
}
