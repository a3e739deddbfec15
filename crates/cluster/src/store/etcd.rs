//! A client of etcd's JSON gateway (`/v3/…`), with the functions that a store needs: without TLS,
//! and without etcd's users.
//!
//! Members are tried in turn, beginning with the one that answered last. Each call has a deadline,
//! and each answer a maximum length.

use super::error::{StoreError, StoreErrorKind};
use super::etcd_watch::EtcdWatch;
use super::gateway::{self, Answer, Key};
pub use super::gateway::{Condition, KeyPage, KeyValue, Operation};
use crate::settings::StoreAddress;
use hotloop::packet::excerpt::excerpt;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Limits on the time of calls and the length of answers.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum time for a member to accept a connection.
    pub connect: Duration,
    /// Maximum time for a call of one member, including its answer.
    pub call: Duration,
    /// Maximum length of the answer to a call, in bytes.
    pub answer_bytes_max: u64,
}

impl Default for Bounds {
    /// 2 s, 5 s and 64 MiB.
    fn default() -> Self {
        let (connect, call) = (Duration::from_secs(2), Duration::from_secs(5));
        Self { connect, call, answer_bytes_max: 64 << 20 }
    }
}

/// A client of the members of one etcd.
#[derive(Debug)]
pub struct Etcd {
    address: StoreAddress,
    bounds: Bounds,
    agent: Agent,
    /// The member that answered last.
    member: Cell<usize>,
}

impl Etcd {
    /// A client of the etcd at this address. Nothing is sent yet.
    #[must_use]
    pub fn new(address: StoreAddress, bounds: Bounds) -> Self {
        let config = Agent::config_builder()
            // The environment's proxies are not for this connection.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_connect(Some(bounds.connect))
            .user_agent("ipip-lb");
        Self { address, bounds, agent: config.build().into(), member: Cell::new(0) }
    }

    /// The store's address.
    #[must_use]
    pub const fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// The first `limit` values of keys, in order, as of `revision`, or now if that is 0.
    ///
    /// # Errors
    /// [`StoreErrorKind::Compacted`] if the revision is no longer kept, and every error of a call.
    pub fn page(&self, keys: Key<'_>, revision: i64, limit: usize) -> Result<KeyPage, StoreError> {
        let mut request = keys.to_json();
        // In etcd's JSON, 64-bit numbers are strings.
        request["revision"] = revision.to_string().into();
        request["limit"] = limit.to_string().into();
        let answer = self.call("/v3/kv/range", &request)?;
        gateway::page(&answer).ok_or_else(|| self.nonsense(&answer))
    }

    /// Does all operations at once if all conditions hold, or else nothing; returns whether they
    /// held, and the store's revision after that.
    ///
    /// If an answer gets lost, another member is asked to do the same again: for a transaction that
    /// changes the keys of its own conditions, the result is then that they did not hold.
    ///
    /// # Errors
    /// Every error of a call.
    pub fn transact(
        &self,
        conditions: &[Condition<'_>],
        operations: &[Operation<'_>],
    ) -> Result<(bool, i64), StoreError> {
        let compare: Vec<_> = conditions.iter().map(|condition| condition.to_json()).collect();
        let success: Vec<_> = operations.iter().map(|operation| operation.to_json()).collect();
        let answer = self.call("/v3/kv/txn", &json!({ "compare": compare, "success": success }))?;
        let revision = gateway::revision(&answer).ok_or_else(|| self.nonsense(&answer))?;
        Ok((answer["succeeded"].as_bool().unwrap_or(false), revision))
    }

    /// Makes a new lease: keys that are put with it disappear `ttl_s` seconds after it was last
    /// kept alive.
    ///
    /// # Errors
    /// Every error of a call.
    pub fn grant(&self, ttl_s: u32) -> Result<i64, StoreError> {
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": ttl_s.to_string() }))?;
        gateway::number(&answer["ID"]).ok_or_else(|| self.nonsense(&answer))
    }

    /// Keeps a lease alive; returns the number of seconds, 0 if the lease is over.
    ///
    /// # Errors
    /// Every error of a call.
    pub fn keep_alive(&self, lease: i64) -> Result<i64, StoreError> {
        let answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        let result = &answer["result"];
        // The gateway omits a number that is 0.
        let ttl = result["TTL"].is_null().then_some(0).or_else(|| gateway::number(&result["TTL"]));
        ttl.filter(|_| result.is_object()).ok_or_else(|| self.nonsense(&answer))
    }

    /// Ends a lease, and with it its keys.
    ///
    /// # Errors
    /// Every error of a call.
    pub fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() })).map(drop)
    }

    /// Watches the keys starting at `revision`, for at most `duration`.
    ///
    /// # Errors
    /// Every error of a call.
    pub fn watch(
        &self,
        keys: Key<'_>,
        revision: i64,
        duration: Duration,
    ) -> Result<EtcdWatch, StoreError> {
        let mut create = keys.to_json();
        create["start_revision"] = revision.to_string().into();
        let request = json!({ "create_request": create });
        let mut response = None;
        self.try_members(|url| {
            response = Some(self.post(&format!("{url}/v3/watch"), &request, duration)?);
            Ok(Answer::Json(Value::Null))
        })?;
        let body = response.map(Response::into_body);
        let body = body.ok_or_else(|| self.unreachable("nobody answered"))?;
        Ok(EtcdWatch::new(self.address.clone(), body))
    }

    /// Calls one member after the other, until one answers.
    fn call(&self, path: &str, request: &Value) -> Result<Value, StoreError> {
        self.try_members(|url| {
            let mut response = self.post(&format!("{url}{path}"), request, self.bounds.call)?;
            let body = response.body_mut().with_config().limit(self.bounds.answer_bytes_max);
            let body = body.read_to_vec()?;
            Ok(Answer::read(response.status().as_u16(), &body))
        })
    }

    fn post(
        &self,
        url: &str,
        request: &Value,
        within: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let post = self.agent.post(url).header("Content-Type", "application/json");
        let post = post.config().timeout_global(Some(within));
        let post = post.timeout_recv_response(Some(self.bounds.call)).build();
        post.send(request.to_string())
    }

    fn try_members(
        &self,
        mut attempt: impl FnMut(&str) -> Result<Answer, ureq::Error>,
    ) -> Result<Value, StoreError> {
        let members = self.address.endpoints();
        let first = self.member.get();
        let mut failures = Vec::new();
        for member in (first..members.len()).chain(0..first) {
            let name = &members[member];
            match attempt(&format!("http://{name}")) {
                Ok(Answer::Json(answer)) => {
                    self.member.set(member);
                    return Ok(answer);
                }
                Ok(Answer::Compacted) => return Err(self.compacted()),
                Ok(Answer::Refused(why)) => {
                    return Err(self.error(StoreErrorKind::Refused, format!("{name} says: {why}")));
                }
                Ok(Answer::Unable(why)) => failures.push(format!("{name}: {}", excerpt(&why))),
                Err(error) => failures.push(format!("{name}: {}", self.why(&error))),
            }
        }
        Err(self.unreachable(&failures.join(", ")))
    }

    /// An operator's text for a failed call.
    fn why(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => "no answer in time".to_owned(),
            ureq::Error::BodyExceedsLimit(bytes) => {
                format!("an answer of more than {bytes} bytes, which is not etcd's")
            }
            error => excerpt(&error.to_string()),
        }
    }

    fn unreachable(&self, why: &str) -> StoreError {
        let remedy = "start etcd, or name its members in the store's address";
        self.error(StoreErrorKind::Unreachable, format!("not reachable ({why}); {remedy}"))
    }

    fn compacted(&self) -> StoreError {
        let problem = "the revision is no longer kept: it was compacted; read the newest one";
        self.error(StoreErrorKind::Compacted, problem)
    }

    /// The error for an answer without its required fields.
    fn nonsense(&self, answer: &Value) -> StoreError {
        let answer = excerpt(&answer.to_string());
        self.unreachable(&format!("an answer that is not etcd's: {answer}"))
    }

    fn error(&self, kind: StoreErrorKind, problem: impl Into<String>) -> StoreError {
        StoreError::new(kind, &self.address, problem)
    }
}
