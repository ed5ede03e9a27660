//! The JSON Schema of the settings, walked by the keys of a value.

use serde_json::Value;

/// Maximum depth of alternatives within alternatives. The schema has three.
const DEPTH_MAX: usize = 8;

/// A part of a schema, with all alternatives that it names.
#[derive(Clone, Default)]
pub(crate) struct SchemaShape<'a> {
    root: Option<&'a Value>,
    /// The part itself first, then what it refers to, then alternatives.
    parts: Vec<&'a Value>,
}

impl<'a> SchemaShape<'a> {
    /// The whole document.
    pub(crate) fn of(schema: &'a Value) -> Self {
        Self::from_parts(schema, [schema])
    }

    fn from_parts(root: &'a Value, nodes: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut parts = Vec::new();
        for node in nodes {
            expand(root, node, &mut parts, 0);
        }
        Self { root: Some(root), parts }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The shape of the value of a key; empty if the key is unknown.
    pub(crate) fn key(&self, key: &str) -> Self {
        let Some(root) = self.root else { return Self::default() };
        let tables = || self.parts.iter().chain(self.items().parts.iter()).copied().collect::<Vec<_>>();
        let named: Vec<&Value> =
            tables().into_iter().filter_map(|part| part.get("properties")?.get(key)).collect();
        let nodes = if named.is_empty() { free(&tables()) } else { named };
        Self::from_parts(root, nodes)
    }

    /// Whether a key has a free name, so that only its name shows what it is.
    pub(crate) fn is_free(&self, key: &str) -> bool {
        let is_named = |part: &&Value| part.get("properties").is_some_and(|keys| keys.get(key).is_some());
        !self.parts.iter().any(is_named)
    }

    /// The shape of the items of a list; empty if it is none.
    pub(crate) fn items(&self) -> Self {
        let Some(root) = self.root else { return Self::default() };
        Self::from_parts(root, self.parts.iter().filter_map(|part| part.get("items")))
    }

    /// The shape at a path of keys. Lists are entered by their items.
    pub(crate) fn at(&self, path: &[String]) -> Self {
        path.iter().fold(self.clone(), |shape, key| shape.key(key))
    }

    /// Whether the value is a secret.
    pub(crate) fn is_secret(&self) -> bool {
        self.parts.iter().any(|part| part.get("writeOnly").is_some_and(|is_set| is_set == true))
    }

    /// The keys of the table that the value is, contains, or may be, with their schemas.
    pub(crate) fn keys(&self) -> Vec<(&'a str, &'a Value)> {
        let items = self.items();
        let tables =
            self.parts.iter().chain(&items.parts).filter_map(|part| part.get("properties")?.as_object());
        let mut found: Vec<(&str, &Value)> = Vec::new();
        for (key, property) in tables.flatten() {
            if found.iter().all(|(other, _)| other != key) {
                found.push((key, property));
            }
        }
        found
    }

    /// Whether the value is a list.
    pub(crate) fn is_list(&self) -> bool {
        self.parts.iter().any(|part| part.get("items").is_some())
    }

    /// The description of the key, or of its type.
    pub(crate) fn help(&self) -> &'a str {
        self.parts.iter().find_map(|part| part.get("description")?.as_str()).unwrap_or_default().trim()
    }

    /// The parts: the schema of the key itself first.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &'a Value> {
        self.parts.iter().copied()
    }
}

/// The schemas of keys with free names.
fn free<'a>(tables: &[&'a Value]) -> Vec<&'a Value> {
    tables
        .iter()
        .filter_map(|part| part.get("additionalProperties"))
        .filter(|more| more.is_object())
        .collect()
}

fn expand<'a>(root: &'a Value, node: &'a Value, parts: &mut Vec<&'a Value>, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    parts.push(node);
    let name = node.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    if let Some(target) = name.and_then(|name| root.pointer(name)) {
        expand(root, target, parts, depth + 1);
    }
    let alternatives =
        ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| node.get(*key)?.as_array()).flatten();
    for alternative in alternatives {
        expand(root, alternative, parts, depth + 1);
    }
}
