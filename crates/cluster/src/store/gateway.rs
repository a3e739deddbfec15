//! The JSON of etcd's gateway: keys and values are in base64, 64-bit numbers are strings, and
//! values that are 0, false or empty are omitted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hotloop::packet::excerpt::excerpt;
use serde_json::{Value, json};

/// gRPC's code for a request that the user may not make.
const PERMISSION_DENIED: i64 = 7;

/// gRPC's code for a request of a revision that doesn't exist.
const OUT_OF_RANGE: i64 = 11;

/// gRPC's code for a token that is not valid, or has expired.
const UNAUTHENTICATED: i64 = 16;

/// Parts of etcd's messages for other tokens that it refuses: one from before users or roles have
/// changed, and none.
const TOKEN_MESSAGES: [&str; 3] =
    ["invalid auth token", "revision of auth store is old", "user name is empty"];

/// gRPC's codes of a member if another may succeed: cancelled, deadline exceeded, internal,
/// unavailable.
const UNABLE: [i64; 4] = [1, 4, 13, 14];

/// A part of the message, which is not JSON, for a client certificate with a Common Name if etcd
/// has users: etcd can't take the user from it.
const COMMON_NAME: &str = "CommonName of client";

/// One key, or a range.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// This key.
    One(&'a str),
    /// All keys from the first on, up to the second, exclusive.
    From(&'a str, &'a str),
}

impl Key<'_> {
    /// The form in requests.
    pub fn to_json(self) -> Value {
        match self {
            Self::One(key) => json!({ "key": STANDARD.encode(key) }),
            Self::From(key, end) => {
                json!({ "key": STANDARD.encode(key), "range_end": STANDARD.encode(end) })
            }
        }
    }
}

/// A condition of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// A key was last changed by this revision: 0 if the key doesn't exist.
    ChangedAt(&'a str, i64),
    /// A key exists.
    Exists(&'a str),
}

impl Condition<'_> {
    pub(super) fn to_json(self) -> Value {
        match self {
            Self::ChangedAt(key, revision) => json!({
                "key": STANDARD.encode(key),
                "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string(),
            }),
            Self::Exists(key) => json!({
                "key": STANDARD.encode(key),
                "target": "VERSION", "result": "GREATER", "version": "0",
            }),
        }
    }
}

/// A part of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Gives a key a value.
    Put(&'a str, &'a str),
    /// Gives a key a value, for as long as the lease lasts.
    PutLeased(&'a str, &'a str, i64),
    /// Deletes keys.
    Delete(Key<'a>),
}

impl Operation<'_> {
    pub(super) fn to_json(self) -> Value {
        let put = |key: &str, value: &str, lease: i64| {
            let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
            json!({ "request_put": { "key": key, "value": value, "lease": lease.to_string() } })
        };
        match self {
            Self::Put(key, value) => put(key, value, 0),
            Self::PutLeased(key, value, lease) => put(key, value, lease),
            Self::Delete(keys) => json!({ "request_delete_range": keys.to_json() }),
        }
    }
}

/// A key and its value. A value from another program need not be text: invalid parts are U+FFFD
/// here; the value's reader rejects them and names the key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// The revision that last changed it.
    pub changed_at: i64,
}

/// Some keys and their values, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyPage {
    /// The store's revision at the time of reading.
    pub revision: i64,
    /// The keys and values.
    pub values: Vec<KeyValue>,
    /// Whether there are more keys after these.
    pub has_more: bool,
}

/// A member's answer.
#[derive(Debug)]
pub(super) enum Answer {
    Json(Value),
    /// The request can't be carried out.
    Refused(String),
    /// The user may not make the request.
    Denied(String),
    /// The client's certificate has a Common Name.
    CommonName(String),
    /// The request has no token of a user, or one that is no longer valid.
    Unauthenticated(String),
    /// The requested revision is no longer kept.
    Compacted,
    /// The member can't do it now: another may.
    Unable(String),
}

impl Answer {
    pub(super) fn read(status: u16, body: &[u8]) -> Self {
        let shown = || excerpt(&String::from_utf8_lossy(body));
        let Ok(answer) = serde_json::from_slice::<Value>(body) else {
            let shown = shown();
            if shown.contains(COMMON_NAME) {
                return Self::CommonName(shown);
            }
            return Self::Unable(format!("status {status} with what is not JSON: {shown}"));
        };
        if status == 200 && answer.get("error").is_none() {
            return Self::Json(answer);
        }
        let message = answer["message"].as_str().or_else(|| answer["error"].as_str());
        let message = message.map_or_else(shown, excerpt);
        match answer["code"].as_i64() {
            Some(UNAUTHENTICATED) => Self::Unauthenticated(message),
            Some(_) if is_about_token(&message) => Self::Unauthenticated(message),
            Some(PERMISSION_DENIED) => Self::Denied(message),
            Some(OUT_OF_RANGE) if message.contains("compacted") => Self::Compacted,
            Some(code) if !UNABLE.contains(&code) => Self::Refused(message),
            _ => Self::Unable(format!("status {status}: {message}")),
        }
    }
}

/// Whether etcd's message is about the token of a request, rather than about the request.
pub(super) fn is_about_token(message: &str) -> bool {
    TOKEN_MESSAGES.iter().any(|part| message.contains(part))
}

/// A 64-bit number.
pub(super) fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

/// The store's revision, which each answer contains.
pub(super) fn revision(answer: &Value) -> Option<i64> {
    number(&answer["header"]["revision"])
}

/// The keys and values of an answer; `None` if the answer is invalid.
pub(super) fn page(answer: &Value) -> Option<KeyPage> {
    let none = Vec::new();
    let all = match &answer["kvs"] {
        Value::Null => &none,
        kvs => kvs.as_array()?,
    };
    let values = all.iter().map(key_value).collect::<Option<Vec<_>>>()?;
    let has_more = answer["more"].as_bool().unwrap_or(false);
    Some(KeyPage { revision: revision(answer)?, values, has_more })
}

fn key_value(kv: &Value) -> Option<KeyValue> {
    let text = |value: &Value| match value {
        Value::Null => Some(String::new()),
        value => {
            let bytes = STANDARD.decode(value.as_str()?).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
    };
    let (key, value) = (text(&kv["key"])?, text(&kv["value"])?);
    Some(KeyValue { key, value, changed_at: number(&kv["mod_revision"])? })
}
