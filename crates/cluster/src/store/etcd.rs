//! A client of etcd's JSON gateway (`/v3/…`), with the functions that a store needs.
//!
//! Members are tried in turn, beginning with the one that answered last. Each call has a deadline,
//! and each answer a maximum length. If etcd refuses the user's token, the client gets a new one and
//! repeats the call once; if TLS fails, it reads its files again, and repeats the call if they have
//! changed.

use super::access::{Access, password};
use super::error::{StoreError, StoreErrorKind};
use super::etcd_watch::EtcdWatch;
use super::gateway::{self, Answer, Key};
pub use super::gateway::{Condition, KeyPage, KeyValue, Operation};
use crate::settings::{StoreAccess, StoreAddress};
use hotloop::packet::excerpt::excerpt;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration;
use ureq::Body;
use ureq::http::Response;

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
    access: Access,
    bounds: Bounds,
    /// The member that answered last.
    member: Cell<usize>,
}

impl Etcd {
    /// A client of an etcd. Nothing is sent yet.
    ///
    /// # Errors
    /// [`StoreErrorKind::Access`] if a file of the settings for TLS can't be read, or has the wrong
    /// content.
    pub fn new(access: impl Into<StoreAccess>, bounds: Bounds) -> Result<Self, StoreError> {
        let settings = access.into();
        let address = settings.address.clone();
        let access = Access::new(settings, bounds)
            .map_err(|why| StoreError::new(StoreErrorKind::Access, address, why))?;
        Ok(Self { access, bounds, member: Cell::new(0) })
    }

    /// The store's address.
    #[must_use]
    pub const fn address(&self) -> &StoreAddress {
        &self.access.settings.address
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
        self.admitted(&mut || {
            let mut response = None;
            self.try_members(|url| {
                response = Some(self.post(&format!("{url}/v3/watch"), &request, duration)?);
                Ok(Answer::Json(Value::Null))
            })?;
            let body = response.map(Response::into_body);
            let body = body.ok_or_else(|| self.unreachable("no member has answered"))?;
            Ok(EtcdWatch::new(self.address().clone(), body, self.access.token.clone()))
        })
    }

    /// Makes a call as the user, if there is one.
    fn call(&self, path: &str, request: &Value) -> Result<Value, StoreError> {
        self.admitted(&mut || self.exchange(path, request))
    }

    /// Makes an attempt with the user's token. Repeats it once if etcd refuses the token, or refuses
    /// TLS with files that have changed since they were read.
    fn admitted<T>(
        &self,
        attempt: &mut dyn FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let logged_in = self.log_in();
        let is_logged_in = logged_in.is_ok();
        let error = match logged_in.and_then(|()| attempt()) {
            Err(error) if error.kind() == StoreErrorKind::Access => error,
            done => return done,
        };
        let has_lost_token = is_logged_in && self.is_logged_out();
        let renewed = || {
            let renewed = self.access.renew();
            renewed.map_err(|why| self.error(StoreErrorKind::Access, why))
        };
        if has_lost_token || renewed()? {
            self.log_in()?;
            return attempt();
        }
        Err(error)
    }

    fn is_logged_out(&self) -> bool {
        self.access.user().is_some() && self.access.token.get().is_none()
    }

    /// Gets a token for the user, if there is a user without one.
    fn log_in(&self) -> Result<(), StoreError> {
        let Some(user) = self.access.user().filter(|_| self.is_logged_out()) else {
            return Ok(());
        };
        let password = password(user).map_err(|why| self.error(StoreErrorKind::Access, why))?;
        let request = json!({ "name": user.name, "password": password });
        let answer = match self.exchange("/v3/auth/authenticate", &request) {
            Err(error) if error.kind() == StoreErrorKind::Refused => {
                let remedy = "write the name and the password of a user of etcd as store_user and \
                              into store_password_file, or `etcdctl auth enable` if etcd has none";
                return Err(error.of_access(remedy));
            }
            answer => answer?,
        };
        let token = answer["token"].as_str().ok_or_else(|| self.unreachable("no token"))?;
        self.access.token.set(Some(token.to_owned()));
        Ok(())
    }

    /// Calls one member after the other, until one answers.
    fn exchange(&self, path: &str, request: &Value) -> Result<Value, StoreError> {
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
        let post = self.access.agent().post(url).header("Content-Type", "application/json");
        let post = match self.access.token.get() {
            Some(token) => post.header("Authorization", token),
            None => post,
        };
        let post = post.config().timeout_global(Some(within));
        let post = post.timeout_recv_response(Some(self.bounds.call)).build();
        post.send(request.to_string())
    }

    fn try_members(
        &self,
        mut attempt: impl FnMut(&str) -> Result<Answer, ureq::Error>,
    ) -> Result<Value, StoreError> {
        let members = self.address().endpoints();
        let first = self.member.get();
        let (mut failures, mut tls_remedy) = (Vec::new(), None);
        for member in (first..members.len()).chain(0..first) {
            let name = &members[member];
            match attempt(&format!("{}://{name}", self.access.scheme())) {
                Ok(Answer::Unable(why)) => {
                    tls_remedy = self.access.gateway_remedy(&why).or(tls_remedy);
                    failures.push(format!("{name}: {}", excerpt(&why)));
                }
                Ok(answer) => {
                    self.member.set(member);
                    return self.answered(name, answer);
                }
                Err(error) => {
                    let words = self.access.tls_error(&error);
                    let (why, remedy) = words.unzip();
                    tls_remedy = remedy.or(tls_remedy);
                    failures.push(format!("{name}: {}", why.unwrap_or_else(|| self.why(&error))));
                }
            }
        }
        let failures = failures.join(", ");
        Err(match tls_remedy {
            None => self.unreachable(&failures),
            Some(remedy) => {
                self.error(StoreErrorKind::Access, format!("not reachable ({failures}); {remedy}"))
            }
        })
    }

    /// The result of a call that this member has answered.
    fn answered(&self, name: &str, answer: Answer) -> Result<Value, StoreError> {
        let denied = |why: &str, remedy: &str| {
            let error = self.error(StoreErrorKind::Refused, format!("{name} says: {why}"));
            Err(error.of_access(remedy))
        };
        match answer {
            Answer::Json(answer) => Ok(answer),
            Answer::Compacted => Err(self.compacted()),
            Answer::Refused(why) | Answer::Unable(why) => {
                Err(self.error(StoreErrorKind::Refused, format!("{name} says: {why}")))
            }
            Answer::Denied(why) => {
                let prefix = self.address().prefix();
                let role = "etcdctl role grant-permission ROLE --prefix=true readwrite";
                denied(&why, &format!("grant the user's role all keys: `{role} {prefix}`"))
            }
            Answer::CommonName(why) => {
                denied(&why, "write a store_certificate without a Common Name (CN) in its subject")
            }
            Answer::Unauthenticated(why) => {
                self.access.token.set(None);
                denied(&why, "write store_user and store_password_file, of a user of etcd")
            }
        }
    }

    /// An operator's text for a failed call.
    fn why(&self, error: &ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => "no answer in time".to_owned(),
            ureq::Error::BodyExceedsLimit(bytes) => {
                format!("an answer of more than {bytes} bytes, which is not etcd's")
            }
            error => {
                let is_tls = if self.access.may_lack_tls(error) {
                    "; if it speaks TLS, write store_authority"
                } else {
                    ""
                };
                format!("{}{is_tls}", excerpt(&error.to_string()))
            }
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
        StoreError::new(kind, self.address(), problem)
    }
}
