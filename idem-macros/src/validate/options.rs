//! Checks the options of the attribute, each alone and then against each other.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Ident, LitStr, TypePath};

use super::{Fingerprint, Policy, Scope, Variant};
use crate::{
    args::{Args, Form, Opt, Value, wrong_form},
    diagnostics::{Errors, nearest, one_of},
    duration, size,
};

/// A closed set of values: as the user writes them, and the variant of the runtime's enum.
struct Closed {
    of: &'static str,
    values: &'static [(&'static str, &'static str)],
}

const KEY_FORMAT: Closed = Closed {
    of: "KeyFormat",
    values: &[("any", "Any"), ("uuid", "Uuid")],
};
const ABANDONED: Closed = Closed {
    of: "Abandonment",
    values: &[("hold", "Hold"), ("rerun", "Rerun")],
};
const MISMATCH: Closed = Closed {
    of: "Mismatch",
    values: &[
        ("422", "Unprocessable"),
        ("409", "Conflict"),
        ("400", "BadRequest"),
    ],
};
const SERVER_ERROR: Closed = Closed {
    of: "ServerError",
    values: &[("keep", "Keep"), ("release", "Release")],
};
const FINGERPRINT: Closed = Closed {
    of: "FingerprintMode",
    values: &[("canonical", "Canonical"), ("raw", "Raw")],
};
const ON_STORE_ERROR: Closed = Closed {
    of: "OnStoreError",
    values: &[("refuse", "Refuse"), ("run", "Run")],
};

impl Closed {
    fn find(&self, word: &str) -> Option<Variant> {
        self.values
            .iter()
            .find(|(value, _)| *value == word)
            .map(|(_, name)| Variant { of: self.of, name })
    }

    fn words(&self) -> impl Iterator<Item = &'static str> {
        self.values.iter().map(|(value, _)| *value)
    }

    /// The allowed values as the user would write them, in quotes.
    fn allowed(&self) -> String {
        one_of(self.words()).replace('`', "\"")
    }
}

/// The shortest lease that can be renewed in time on a busy machine.
const SHORTEST_LEASE_MS: u64 = 100;

/// Headers with a meaning of their own: a key in one of them would be misread by somebody.
const TAKEN_HEADERS: [&str; 26] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "if-match",
    "if-none-match",
    "origin",
    "proxy-authorization",
    "range",
    "referer",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// The header that carries the key unless the route names another.
const DEFAULT_HEADER: &str = "idempotency-key";

/// Checks all options that make up the policy. `None` if `scope` or `ttl` cannot be known.
pub(crate) fn policy(args: &Args, errors: &mut Errors) -> Option<Policy> {
    let scope = scope(args, errors);
    let ttl_ms = ttl(args, errors);
    let required = args.flag(Opt::Required, errors);
    let key_format = closed(args, Opt::KeyFormat, &KEY_FORMAT, errors);
    let header = header(args, errors);
    let key_header = header.as_deref().unwrap_or(DEFAULT_HEADER);
    let transaction = transaction(args, errors);
    let wait_ms = duration(args, Opt::Wait, errors);
    let lease_ms = lease(args, errors);
    let abandoned = closed(args, Opt::Abandoned, &ABANDONED, errors);
    let reconcile = function(args, Opt::Reconcile, errors);
    let mismatch = mismatch(args, errors);
    let server_error = closed(args, Opt::ServerError, &SERVER_ERROR, errors);
    let release_on = release_on(args, errors);
    let fingerprint = fingerprint(args, errors);
    let ignore = ignore(args, errors);
    let headers = headers(args, key_header, errors);
    let max_body = max_body(args, errors);
    let max_response = bytes(args, Opt::MaxResponse, errors);
    let on_store_error = closed(args, Opt::OnStoreError, &ON_STORE_ERROR, errors);
    if let Some(fingerprint) = &fingerprint {
        ignore_contradicts(args, fingerprint, errors);
    }
    if transaction.is_some() {
        transaction_contradicts(args, on_store_error, errors);
    } else if reconcile.is_some() {
        refuse(
            args,
            Opt::Abandoned,
            "contradicts `reconcile`: that function decides what becomes of an abandoned request",
            errors,
        );
    }
    Some(Policy {
        scope: scope?,
        ttl_ms: ttl_ms?,
        required,
        key_format,
        header,
        wait_ms,
        lease_ms,
        abandoned,
        reconcile,
        mismatch,
        server_error,
        release_on,
        fingerprint,
        ignore,
        headers,
        max_body,
        max_response,
        on_store_error,
        transaction: transaction.cloned(),
    })
}

/// Refuses an option that would have been ignored beside another.
fn refuse(args: &Args, opt: Opt, because: &str, errors: &mut Errors) {
    if let Some(given) = args.get(opt) {
        errors.at(&given.name, format_args!("`{}` {because}", opt.name()));
    }
}

fn ignore_contradicts(args: &Args, fingerprint: &Fingerprint, errors: &mut Errors) {
    let because = match fingerprint {
        Fingerprint::Mode(Variant { name: "Raw", .. }) => {
            "contradicts `fingerprint = \"raw\"`: raw bytes have no fields to leave out; use \"canonical\""
        }
        Fingerprint::Mode(_) => return,
        Fingerprint::Custom(_) => {
            "contradicts a `fingerprint` function: leave the fields out in that function"
        }
    };
    refuse(args, Opt::Ignore, because, errors);
}

fn transaction_contradicts(args: &Args, on_store_error: Option<Variant>, errors: &mut Errors) {
    refuse(
        args,
        Opt::Abandoned,
        "contradicts `transaction`: an abandoned transaction has committed nothing, so it is always run again",
        errors,
    );
    refuse(
        args,
        Opt::Reconcile,
        "contradicts `transaction`: an abandoned transaction has committed nothing, so there is nothing to ask",
        errors,
    );
    if matches!(on_store_error, Some(Variant { name: "Run", .. })) {
        refuse(
            args,
            Opt::OnStoreError,
            "= \"run\" contradicts `transaction`: without the store there is no transaction to run in",
            errors,
        );
    }
}

fn missing(opt: Opt, why: &str, errors: &mut Errors) {
    errors.at_span(
        Span::call_site(),
        format_args!(
            "`{}` is missing: {why}; write `{}`",
            opt.name(),
            opt.example()
        ),
    );
}

fn scope(args: &Args, errors: &mut Errors) -> Option<Scope> {
    if args.get(Opt::Scope).is_none() {
        missing(
            Opt::Scope,
            "say who owns a key (`scope = \"global\"` if everybody shares them)",
            errors,
        );
        return None;
    }
    match args.value(Opt::Scope, errors)? {
        Value::Str(literal) => scope_names(literal, errors),
        Value::Path(path) => match lone_name(path) {
            // A type has a capital in Rust; what has none was meant to be a name.
            Some(name)
                if name
                    .to_string()
                    .starts_with(|c: char| c.is_ascii_lowercase()) =>
            {
                errors.at(
                    path,
                    format_args!(
                        "the name of a scope goes in quotes: write `scope = \"{name}\"` (a path without quotes is a type that implements `Principal`)"
                    ),
                );
                None
            }
            _ => Some(Scope::Principal(path.clone())),
        },
        value => {
            wrong_form(Opt::Scope, value, errors);
            None
        }
    }
}

fn scope_names(literal: &LitStr, errors: &mut Errors) -> Option<Scope> {
    let text = literal.value();
    if text.is_empty() {
        errors.at(
            literal,
            "`scope` is empty: name who owns a key, as in `scope = \"user\"`, or say `scope = \"global\"`",
        );
        return None;
    }
    if text == "global" {
        return Some(Scope::Global);
    }
    let names: Vec<_> = text.split(':').map(str::to_owned).collect();
    for (index, name) in names.iter().enumerate() {
        let complaint = if name.is_empty() {
            "has an empty name in it: write \"user\", or \"tenant:user\" for both together"
                .to_owned()
        } else if let Some(odd) = name
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
        {
            format!(
                "has the character {odd:?} in it: a name is made of letters, digits, `_`, `-` and `.`, and two names are put together with a colon, as in \"tenant:user\""
            )
        } else if name == "global" {
            "cannot combine `global` with a name: write the name alone, which already sets its owners apart"
                .to_owned()
        } else if names[..index].contains(name) {
            format!("has `{name}` twice in it: write it once")
        } else {
            continue;
        };
        errors.at(literal, format_args!("`scope` {complaint}"));
        return None;
    }
    Some(Scope::Named(names))
}

fn ttl(args: &Args, errors: &mut Errors) -> Option<u64> {
    if args.get(Opt::Ttl).is_none() {
        missing(
            Opt::Ttl,
            "say how long an answer is kept for retries",
            errors,
        );
        return None;
    }
    duration(args, Opt::Ttl, errors)
}

fn duration(args: &Args, opt: Opt, errors: &mut Errors) -> Option<u64> {
    // Not `wrong_form`: a bare number is so natural a slip that it deserves its own words.
    if let Some(Form::Value(Value::Int(number))) = args.get(opt).map(|given| &given.form) {
        errors.at(
            number,
            format_args!(
                "`{name}` is a number without a unit: write it in quotes with one, as in `{name} = \"{number}s\"`",
                name = opt.name(),
            ),
        );
        return None;
    }
    let literal = args.string(opt, errors)?;
    duration::parse_millis(&literal.value())
        .map_err(|complaint| errors.at(literal, format_args!("`{}` {complaint}", opt.name())))
        .ok()
}

fn lease(args: &Args, errors: &mut Errors) -> Option<u64> {
    let millis = duration(args, Opt::Lease, errors)?;
    if millis < SHORTEST_LEASE_MS {
        let literal = args.string(Opt::Lease, errors)?;
        errors.at(
            literal,
            format_args!(
                "`lease` is shorter than {SHORTEST_LEASE_MS}ms: it is renewed while the handler runs, so make it as long as a dead process may go unnoticed, as in `lease = \"30s\"`"
            ),
        );
        return None;
    }
    Some(millis)
}

fn closed(args: &Args, opt: Opt, set: &Closed, errors: &mut Errors) -> Option<Variant> {
    match args.value(opt, errors)? {
        Value::Str(literal) => variant(opt, set, literal, errors),
        value => {
            forgotten_quotes(opt, set, value, errors);
            None
        }
    }
}

fn variant(opt: Opt, set: &Closed, literal: &LitStr, errors: &mut Errors) -> Option<Variant> {
    let word = literal.value();
    let found = set.find(&word);
    if found.is_none() {
        let meant = nearest(&word, set.words())
            .map(|meant| format!(" (did you mean \"{meant}\"?)"))
            .unwrap_or_default();
        errors.at(
            literal,
            format_args!("`{}` is {}{meant}", opt.name(), set.allowed()),
        );
    }
    found
}

/// Reports a value that is no string where a word in quotes was expected.
fn forgotten_quotes(opt: Opt, set: &Closed, value: &Value, errors: &mut Errors) {
    let bare = match value {
        Value::Path(path) => lone_name(path).map(ToString::to_string),
        _ => None,
    };
    match bare {
        Some(word) if set.find(&word).is_some() => errors.at(
            value,
            format_args!("write `{} = \"{word}\"`, in quotes", opt.name()),
        ),
        _ => errors.at(
            value,
            format_args!("`{}` is {}, in quotes", opt.name(), set.allowed()),
        ),
    }
}

fn mismatch(args: &Args, errors: &mut Errors) -> Option<Variant> {
    let value = args.value(Opt::Mismatch, errors)?;
    let found = match value {
        Value::Int(literal) => MISMATCH.find(literal.base10_digits()),
        _ => None,
    };
    if found.is_none() {
        let allowed = one_of(MISMATCH.words());
        errors.at(
            value,
            format_args!(
                "`mismatch` is the status {allowed}, without quotes: write `{}`",
                Opt::Mismatch.example()
            ),
        );
    }
    found
}

fn release_on(args: &Args, errors: &mut Errors) -> Option<Vec<u16>> {
    let (elements, _) = args.list(Opt::ReleaseOn, errors)?;
    let mut statuses: Vec<u16> = Vec::new();
    for element in elements {
        let status: Option<u16> = match element {
            Value::Int(literal) => literal.base10_parse().ok(),
            _ => None,
        };
        match status.filter(|status| (200..=599).contains(status)) {
            None => errors.at(
                element,
                "`release_on` lists status codes from 400 to 599: write `release_on = [425, 429]`",
            ),
            // What succeeds has had its effect: a retry must find the answer, not the handler.
            Some(status) if status < 400 => errors.at(
                element,
                format_args!(
                    "`release_on` lists failures, from 400 to 599: with {status} a success would not be kept, and a retry would run the handler a second time; write `release_on = [425, 429]`, and return `outcome::release(response)` where nothing has happened in spite of such an answer"
                ),
            ),
            Some(status) if statuses.contains(&status) => {
                errors.at(element, format_args!("`release_on` has {status} twice: remove one"));
            }
            Some(status) => statuses.push(status),
        }
    }
    Some(statuses)
}

fn fingerprint(args: &Args, errors: &mut Errors) -> Option<Fingerprint> {
    match args.value(Opt::Fingerprint, errors)? {
        Value::Str(literal) => {
            let mode = FINGERPRINT.find(&literal.value());
            if mode.is_none() {
                no_fingerprint(literal, errors);
            }
            mode.map(Fingerprint::Mode)
        }
        Value::Path(path) => {
            let bare = lone_name(path).map(ToString::to_string);
            if bare.is_some_and(|word| FINGERPRINT.find(&word).is_some()) {
                forgotten_quotes(
                    Opt::Fingerprint,
                    &FINGERPRINT,
                    &Value::Path(path.clone()),
                    errors,
                );
                return None;
            }
            Some(Fingerprint::Custom(path.clone()))
        }
        value => {
            wrong_form(Opt::Fingerprint, value, errors);
            None
        }
    }
}

/// Reports a word in quotes that may have been meant for a mode or for a function.
fn no_fingerprint(literal: &LitStr, errors: &mut Errors) {
    let word = literal.value();
    let allowed = FINGERPRINT.allowed();
    let (name, example) = (Opt::Fingerprint.name(), Opt::Fingerprint.example());
    if let Some(meant) = nearest(&word, FINGERPRINT.words()) {
        errors.at(
            literal,
            format_args!("`{name}` is {allowed} (did you mean \"{meant}\"?)"),
        );
        return;
    }
    let function = match literal.parse::<TypePath>() {
        Ok(path) => path.to_token_stream().to_string().replace(' ', ""),
        Err(_) => "path::to::function".to_owned(),
    };
    errors.at(
        literal,
        format_args!(
            "`{name}` is {allowed}, or a function of your own, a `fn(&RequestParts<'_>) -> Vec<u8>`, by its path without quotes: write `{example}` or `{name} = {function}`"
        ),
    );
}

/// A list of strings in which no two are the same and which is not empty.
fn strings<'a>(args: &'a Args, opt: Opt, errors: &mut Errors) -> Option<Vec<&'a LitStr>> {
    let (elements, brackets) = args.list(opt, errors)?;
    if elements.is_empty() {
        errors.at(
            brackets,
            format_args!("`{}` lists nothing: leave the option out", opt.name()),
        );
    }
    let mut literals = Vec::new();
    for element in elements {
        match element {
            Value::Str(literal) => literals.push(literal),
            other => errors.at(
                other,
                format_args!("`{}` lists strings: write `{}`", opt.name(), opt.example()),
            ),
        }
    }
    Some(literals)
}

/// JSON pointers, RFC 6901, in which a segment `*` stands for every element of an array.
fn ignore(args: &Args, errors: &mut Errors) -> Option<Vec<String>> {
    let mut pointers: Vec<String> = Vec::new();
    for literal in strings(args, Opt::Ignore, errors)? {
        let pointer = literal.value();
        if let Some(complaint) = pointer_complaint(&pointer) {
            errors.at(literal, complaint);
        } else if pointers.contains(&pointer) {
            errors.at(
                literal,
                format_args!("`ignore` has \"{pointer}\" twice: remove one"),
            );
        } else {
            pointers.push(pointer);
        }
    }
    Some(pointers)
}

fn pointer_complaint(pointer: &str) -> Option<String> {
    if pointer.is_empty() {
        return Some(
            "`ignore` has an empty pointer, which means the whole body: name a field, as in \"/client_ts\""
                .to_owned(),
        );
    }
    if !pointer.starts_with('/') {
        return Some(format!(
            "a JSON pointer begins with a slash: write \"/{}\"",
            pointer.trim_start_matches("$.").replace('.', "/")
        ));
    }
    // RFC 6901 section 3: `~` only as `~0` (itself) and `~1` (a slash).
    let bad_escape = pointer
        .split('~')
        .skip(1)
        .any(|rest| !rest.starts_with(['0', '1']));
    bad_escape
        .then(|| "in a JSON pointer `~` is written `~0` and a `/` within a name `~1`: write \"/a~0b\" for a field called `a~b`".to_owned())
}

fn headers(args: &Args, key_header: &str, errors: &mut Errors) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for literal in strings(args, Opt::Headers, errors)? {
        let Some(name) = header_name(Opt::Headers, literal, errors) else {
            continue;
        };
        if name == key_header {
            errors.at(
                literal,
                "`headers` lists the header of the key itself, which is compared anyway: leave it out",
            );
        } else if names.contains(&name) {
            errors.at(
                literal,
                format_args!("`headers` has \"{name}\" twice (case does not matter): remove one"),
            );
        } else {
            names.push(name);
        }
    }
    Some(names)
}

fn header(args: &Args, errors: &mut Errors) -> Option<String> {
    let literal = args.string(Opt::Header, errors)?;
    let name = header_name(Opt::Header, literal, errors)?;
    if TAKEN_HEADERS.contains(&name.as_str()) {
        errors.at(
            literal,
            format_args!(
                "`{}` has a meaning of its own in HTTP and cannot carry the key: leave `header` out for `Idempotency-Key`, or name another, as in `{}`",
                literal.value(),
                Opt::Header.example()
            ),
        );
        return None;
    }
    Some(name)
}

/// A field name, RFC 9110 section 5.1, in lower case.
fn header_name(opt: Opt, literal: &LitStr, errors: &mut Errors) -> Option<String> {
    let name = literal.value();
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let complaint = match name.chars().find(|c| !is_token(*c)) {
        None if !name.is_empty() => return Some(name.to_ascii_lowercase()),
        None => "an empty name".to_owned(),
        Some(odd) => format!("the character {odd:?}, which no header name can contain"),
    };
    errors.at(
        literal,
        format_args!(
            "`{}` has {complaint}: write `{}`",
            opt.name(),
            opt.example()
        ),
    );
    None
}

fn bytes(args: &Args, opt: Opt, errors: &mut Errors) -> Option<u64> {
    let value = args.value(opt, errors)?;
    let text = match value {
        Value::Str(literal) => literal.value(),
        Value::Int(literal) => literal.base10_digits().to_owned(),
        other => {
            wrong_form(opt, other, errors);
            return None;
        }
    };
    size::parse_bytes(&text)
        .map_err(|complaint| errors.at(value, format_args!("`{}` {complaint}", opt.name())))
        .ok()
}

/// A `max_response` of zero keeps no body at all, which can be meant; a `max_body` of zero
/// refuses every body, for which a handler needs no option.
fn max_body(args: &Args, errors: &mut Errors) -> Option<u64> {
    let bytes = bytes(args, Opt::MaxBody, errors)?;
    if bytes == 0 {
        let value = args.value(Opt::MaxBody, errors);
        errors.at(
            value,
            "`max_body` is zero, so that every request with a body would be refused: name the largest body that the handler takes, as in `max_body = \"1MiB\"`",
        );
        return None;
    }
    Some(bytes)
}

/// The path of a function.
fn function(args: &Args, opt: Opt, errors: &mut Errors) -> Option<TypePath> {
    match args.value(opt, errors)? {
        Value::Path(path) => Some(path.clone()),
        value => {
            match unquoted::<TypePath>(value) {
                Some(path) => errors.at(
                    value,
                    format_args!(
                        "write `{} = {}`, without quotes",
                        opt.name(),
                        path.to_token_stream().to_string().replace(' ', "")
                    ),
                ),
                None => wrong_form(opt, value, errors),
            }
            None
        }
    }
}

/// The name of the argument that receives the transaction.
fn transaction<'a>(args: &'a Args, errors: &mut Errors) -> Option<&'a Ident> {
    let value = args.value(Opt::Transaction, errors)?;
    if let Value::Path(path) = value
        && let Some(name) = lone_name(path)
    {
        return Some(name);
    }
    match unquoted::<Ident>(value) {
        Some(name) => errors.at(
            value,
            format_args!("write `transaction = {name}`, without quotes"),
        ),
        None => wrong_form(Opt::Transaction, value, errors),
    }
    None
}

/// What the string would be without its quotes.
fn unquoted<T: syn::parse::Parse>(value: &Value) -> Option<T> {
    match value {
        Value::Str(literal) => literal.parse().ok(),
        _ => None,
    }
}

/// The path of the runtime.
pub(super) fn krate(args: &Args, errors: &mut Errors) -> Option<TokenStream> {
    if args.get(Opt::Crate).is_none() {
        return Some(quote_spanned!(Span::mixed_site()=> ::idem_runtime));
    }
    match args.value(Opt::Crate, errors)? {
        Value::Path(TypePath {
            qself: None, path, ..
        }) if path.leading_colon.is_some() || path.segments[0].ident == "crate" => {
            Some(path.to_token_stream())
        }
        Value::Path(path) => {
            let written = path.to_token_stream().to_string().replace(' ', "");
            errors.at(
                path,
                format_args!(
                    "`crate` takes an absolute path, which means the same wherever the handler stands: write `crate = ::{written}` for a dependency or `crate = crate::{written}` for a module of your own"
                ),
            );
            None
        }
        value => {
            match unquoted::<syn::Path>(value) {
                Some(path) => {
                    let path = path.to_token_stream().to_string().replace(' ', "");
                    errors.at(
                        value,
                        format_args!(
                            "write `crate = ::{}`, without quotes",
                            path.trim_start_matches("::")
                        ),
                    );
                }
                None => wrong_form(Opt::Crate, value, errors),
            }
            None
        }
    }
}

/// The name, if the path is a single one.
fn lone_name(path: &TypePath) -> Option<&Ident> {
    match path.qself {
        None => path.path.get_ident(),
        Some(_) => None,
    }
}
