//! Requests whose fingerprints are fixed for ever: stored records hold them.

use idem_runtime::fingerprint::{
    FORMAT, Fingerprint, HmacKey, Mode, Options, RequestParts, fingerprint,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    name: String,
    method: String,
    path: String,
    #[serde(default)]
    query: String,
    content_type: Option<String>,
    #[serde(default)]
    content_encoding: Vec<String>,
    #[serde(default)]
    headers: Vec<(String, Vec<String>)>,
    #[serde(default)]
    body: String,
    /// Instead of `body`, where that is not text.
    body_hex: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    ignore: Vec<String>,
    hmac_key: Option<String>,
    fingerprint: String,
}

impl Golden {
    fn compute(&self) -> Fingerprint {
        let body = match &self.body_hex {
            None => self.body.clone().into_bytes(),
            Some(hex) => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect(),
        };
        let mut parts = RequestParts::new(&self.method, &self.path, &body)
            .query(&self.query)
            .content_type(self.content_type.as_deref().map(str::as_bytes))
            .content_encoding(self.content_encoding.iter().map(String::as_bytes));
        for (name, lines) in &self.headers {
            parts = parts.header(name, lines.iter().map(String::as_bytes));
        }
        let ignore: Vec<&str> = self.ignore.iter().map(String::as_str).collect();
        let key = self
            .hmac_key
            .as_ref()
            .map(|key| HmacKey::new(key.as_bytes()));
        let mode = match self.mode.as_deref() {
            None => Mode::Canonical,
            Some("raw") => Mode::Raw,
            Some(other) => panic!("unknown mode {other}"),
        };
        let options = Options::default()
            .mode(mode)
            .ignore(&ignore)
            .hmac_key(key.as_ref());
        fingerprint(&parts, &options).unwrap()
    }
}

#[test]
fn stored_fingerprints_stay_valid() {
    assert_eq!(
        FORMAT, 1,
        "a new format needs golden vectors of its own, beside the old ones"
    );
    let vectors: Vec<Golden> = serde_json::from_str(include_str!("data/golden.json")).unwrap();
    assert!(vectors.len() >= 35, "vectors may be added, not removed");
    let changed: Vec<String> = vectors
        .iter()
        .map(|vector| (vector, vector.compute().to_hex()))
        .filter(|(vector, now)| *now != vector.fingerprint)
        .map(|(vector, now)| format!("{}: {now}, not {}", vector.name, vector.fingerprint))
        .collect();
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}
