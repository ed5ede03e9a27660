//! Changes of guards to the fields that an application gets.

use crate::reply::Fields;

/// Changes to the fields of a request for an application: names that the client may not send, and fields in their place.
///
/// ```
/// use encke_server::PassedFields;
///
/// let mut passed = PassedFields::new(["X-User"]);
/// passed.fields.push("X-User", b"ann")?;
/// assert!(passed.removes(b"x-user") && passed.removes(b"X.User") && !passed.removes(b"X-Users"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PassedFields {
    /// Fields that the application gets.
    pub fields: Fields,
    /// Names of fields that the application does not get from the client.
    removed: Vec<Box<str>>,
}

impl PassedFields {
    /// Removes the client's fields of these names.
    pub fn new<'a>(removed: impl IntoIterator<Item = &'a str>) -> Self {
        Self { fields: Fields::new(), removed: removed.into_iter().map(Box::from).collect() }
    }

    /// Whether the client's fields of this name are removed. Names are compared by [`are_alike`].
    pub fn removes(&self, name: &[u8]) -> bool {
        self.removed.iter().any(|removed| are_alike(removed.as_bytes(), name))
    }

    /// Adds the changes of a later guard.
    pub fn add(&mut self, other: &Self) {
        self.removed.extend(other.removed.iter().cloned());
        self.fields.extend(&other.fields);
    }
}

/// Whether an application may take two names of fields for the same: letters case-insensitively, and every character but letters
/// and digits as a hyphen. Programs that name fields as CGI does (RFC 3875 §4.1.18) see `HTTP_X_USER` for `X-User`, and some of
/// them for `X.User` and `X~User` as well.
///
/// ```
/// use encke_server::are_alike;
///
/// assert!(are_alike(b"X-User", b"x.uSER") && !are_alike(b"X-User", b"XXUser"));
/// ```
pub fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    one.len() == other.len() && one.iter().zip(other).all(|(&one, &other)| plain(one) == plain(other))
}
