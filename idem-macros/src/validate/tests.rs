//! Validation: what each option and each part of a signature may be.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::*;

/// Validates options and a function, and gives what `read` takes from the route together with the
/// complaints. `None` if there is no route.
fn validate<T>(
    args: TokenStream,
    item: TokenStream,
    read: impl FnOnce(&Route<'_>) -> T,
) -> (Option<T>, Vec<String>) {
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let handler = Handler::parse(&item).expect("a function");
    let route = route(&args, &handler, &mut errors);
    (route.as_ref().map(read), errors.messages())
}

/// The policy of options beside `scope` and `ttl` that must be accepted.
fn accepted<T>(options: TokenStream, read: impl FnOnce(&Policy) -> T) -> T {
    let (value, complaints) = validate(
        quote!(scope = "user", ttl = "24h", #options),
        quote!(
            async fn f() -> String {}
        ),
        |route| read(&route.policy),
    );
    assert_eq!(complaints, Vec::<String>::new(), "{options}");
    value.expect("a route")
}

/// The one complaint about options beside `scope` and `ttl`.
fn complaint(options: TokenStream) -> String {
    let (_, complaints) = validate(
        quote!(scope = "user", ttl = "24h", #options),
        quote!(
            async fn f() -> String {}
        ),
        |_| (),
    );
    let [complaint] = complaints.as_slice() else {
        panic!("{options}: not one complaint: {complaints:#?}");
    };
    complaint.clone()
}

/// The one complaint about a function; `options` stand beside `scope` and `ttl`.
fn complaint_about(item: TokenStream, options: TokenStream) -> String {
    let (_, complaints) = validate(
        quote!(scope = "user", ttl = "24h", #options),
        item.clone(),
        |_| (),
    );
    let [complaint] = complaints.as_slice() else {
        panic!("{item}: not one complaint: {complaints:#?}");
    };
    complaint.clone()
}

fn name(variant: Option<Variant>) -> Option<&'static str> {
    variant.map(|variant| variant.name)
}

#[test]
fn nothing_but_scope_and_ttl_leaves_all_to_the_builder() {
    let policy = accepted(quote!(), |policy| {
        assert_eq!(policy.ttl_ms, 86_400_000);
        assert!(matches!(&policy.scope, Scope::Named(names) if names == &["user"]));
        [
            policy.required,
            policy.key_format.is_some(),
            policy.header.is_some(),
            policy.wait_ms.is_some(),
            policy.lease_ms.is_some(),
            policy.abandoned.is_some(),
            policy.reconcile.is_some(),
            policy.mismatch.is_some(),
            policy.server_error.is_some(),
            policy.release_on.is_some(),
            policy.fingerprint.is_some(),
            policy.ignore.is_some(),
            policy.headers.is_some(),
            policy.max_body.is_some(),
            policy.max_response.is_some(),
            policy.on_store_error.is_some(),
            policy.transaction.is_some(),
        ]
    });
    assert!(policy.iter().all(|set| !set), "{policy:?}");
}

#[test]
fn options_are_read() {
    assert!(accepted(quote!(required), |p| p.required));
    assert_eq!(
        accepted(quote!(header = "X-Key"), |p| p.header.clone()),
        Some("x-key".to_owned())
    );
    assert_eq!(accepted(quote!(wait = "5s"), |p| p.wait_ms), Some(5_000));
    assert_eq!(accepted(quote!(lease = "100ms"), |p| p.lease_ms), Some(100));
    assert_eq!(
        accepted(quote!(reconcile = a::b), |p| p
            .reconcile
            .to_token_stream()
            .to_string()),
        "a :: b"
    );
    assert_eq!(
        accepted(quote!(release_on = [503, 400, 599]), |p| p
            .release_on
            .clone()),
        Some(vec![503, 400, 599])
    );
    // An empty list is a statement: the default list is not released.
    assert_eq!(
        accepted(quote!(release_on = []), |p| p.release_on.clone()),
        Some(vec![])
    );
    assert_eq!(
        accepted(quote!(ignore = ["/a~1b/~0", "/items/*/ts", "/"]), |p| p
            .ignore
            .clone()
            .unwrap()),
        ["/a~1b/~0", "/items/*/ts", "/"]
    );
    assert_eq!(
        accepted(quote!(headers = ["Accept-Version", "X-A"]), |p| p
            .headers
            .clone()
            .unwrap()),
        ["accept-version", "x-a"]
    );
    assert_eq!(
        accepted(quote!(max_body = "1MiB", max_response = 0), |p| (
            p.max_body,
            p.max_response
        )),
        (Some(1 << 20), Some(0))
    );
    assert!(accepted(quote!(fingerprint = my::digest), |p| matches!(
        p.fingerprint,
        Some(Fingerprint::Custom(_))
    )));
}

#[test]
fn words_of_closed_sets_become_variants() {
    for (options, variant) in [
        (quote!(key_format = "any"), "Any"),
        (quote!(key_format = "uuid"), "Uuid"),
    ] {
        assert_eq!(accepted(options, |p| name(p.key_format)), Some(variant));
    }
    for (options, variant) in [
        (quote!(abandoned = "hold"), "Hold"),
        (quote!(abandoned = "rerun"), "Rerun"),
    ] {
        assert_eq!(accepted(options, |p| name(p.abandoned)), Some(variant));
    }
    for (options, variant) in [
        (quote!(mismatch = 422), "Unprocessable"),
        (quote!(mismatch = 409), "Conflict"),
        (quote!(mismatch = 400), "BadRequest"),
    ] {
        assert_eq!(accepted(options, |p| name(p.mismatch)), Some(variant));
    }
    for (options, variant) in [
        (quote!(server_error = "keep"), "Keep"),
        (quote!(server_error = "release"), "Release"),
    ] {
        assert_eq!(accepted(options, |p| name(p.server_error)), Some(variant));
    }
    for (options, variant) in [
        (quote!(on_store_error = "refuse"), "Refuse"),
        (quote!(on_store_error = "run"), "Run"),
    ] {
        assert_eq!(accepted(options, |p| name(p.on_store_error)), Some(variant));
    }
    for (options, variant) in [
        (quote!(fingerprint = "canonical"), "Canonical"),
        (quote!(fingerprint = "raw"), "Raw"),
    ] {
        let mode = accepted(options, |p| match p.fingerprint {
            Some(Fingerprint::Mode(mode)) => Some(mode),
            _ => None,
        });
        assert_eq!(name(mode), Some(variant));
    }
}

#[test]
fn scopes_are_names_or_a_type() {
    let scope = |scope: TokenStream| {
        let (found, complaints) = validate(
            quote!(ttl = "24h", scope = #scope),
            quote!(
                async fn f() -> String {}
            ),
            |route| match &route.policy.scope {
                Scope::Named(names) => names.join("+"),
                Scope::Global => "everybody".to_owned(),
                Scope::Principal(path) => format!("type {}", path.to_token_stream()),
            },
        );
        found.unwrap_or_else(|| complaints.join("|"))
    };
    assert_eq!(scope(quote!("user")), "user");
    assert_eq!(scope(quote!("tenant:user")), "tenant+user");
    assert_eq!(scope(quote!("api_key.v2-x")), "api_key.v2-x");
    assert_eq!(scope(quote!("global")), "everybody");
    assert_eq!(scope(quote!(Owner)), "type Owner");
    assert_eq!(
        scope(quote!(crate::auth::Owner<u8>)),
        "type crate :: auth :: Owner < u8 >"
    );
    assert_eq!(scope(quote!(self::owner)), "type self :: owner");
    for (written, part) in [
        (quote!(""), "`scope` is empty"),
        (quote!("a::b"), "an empty name"),
        (quote!(":"), "an empty name"),
        (quote!("user:"), "an empty name"),
        (quote!("us er"), "the character ' '"),
        (quote!("tenant/user"), "the character '/'"),
        (quote!("пользователь"), "the character 'п'"),
        (quote!("tenant:global"), "cannot combine `global`"),
        (quote!("user:user"), "`user` twice"),
        (quote!(user), "write `scope = \"user\"`"),
        (
            quote!(["user"]),
            "`scope` takes the name of a scope in quotes",
        ),
        (quote!(7), "`scope` takes the name of a scope in quotes"),
    ] {
        let complaint = scope(written.clone());
        assert!(complaint.contains(part), "{written}: {complaint}");
    }
}

#[test]
fn missing_options_are_named_with_the_reason() {
    let (route, complaints) = validate(
        quote!(),
        quote!(
            async fn f() -> String {}
        ),
        |_| (),
    );
    assert!(route.is_none());
    assert_eq!(complaints.len(), 2, "{complaints:#?}");
    assert!(complaints[0].starts_with("`scope` is missing: say who owns a key"));
    assert!(complaints[1].starts_with("`ttl` is missing: say how long"));
}

#[test]
fn each_bad_option_has_one_complaint_that_says_what_to_write() {
    for (options, part) in [
        (quote!(required = true), "write `required` to turn it on"),
        (quote!(lease), "write `lease = \"30s\"`"),
        (
            quote!(lease = 30),
            "write it in quotes with one, as in `lease = \"30s\"`",
        ),
        (
            quote!(lease = seconds),
            "`lease` takes a duration in quotes",
        ),
        (quote!(lease = "99ms"), "shorter than 100ms"),
        (quote!(lease = "0s"), "longer than zero"),
        (quote!(lease = "11years"), "ten years"),
        (quote!(wait = "soon"), "is not a duration"),
        (
            quote!(key_format = "uid"),
            "is \"any\" or \"uuid\" (did you mean \"uuid\"?)",
        ),
        (
            quote!(key_format = "ulid-or-so"),
            "`key_format` is \"any\" or \"uuid\"",
        ),
        (
            quote!(key_format = uuid),
            "write `key_format = \"uuid\"`, in quotes",
        ),
        (
            quote!(key_format = 7),
            "`key_format` is \"any\" or \"uuid\", in quotes",
        ),
        (quote!(abandoned = "Hold"), "did you mean \"hold\"?"),
        (quote!(mismatch = 418), "`422`, `409` or `400`"),
        (
            quote!(mismatch = "422"),
            "without quotes: write `mismatch = 422`",
        ),
        (quote!(server_error = "drop"), "\"keep\" or \"release\""),
        (quote!(on_store_error = "fail"), "\"refuse\" or \"run\""),
        (
            quote!(fingerprint = "cannonical"),
            "did you mean \"canonical\"?",
        ),
        (
            quote!(fingerprint = raw),
            "write `fingerprint = \"raw\"`, in quotes",
        ),
        (
            quote!(fingerprint = "exact"),
            "by its path without quotes: write `fingerprint = \"canonical\"` or `fingerprint = exact`",
        ),
        (
            quote!(fingerprint = "my::digest"),
            "or `fingerprint = my::digest`",
        ),
        (
            quote!(fingerprint = "every byte"),
            "is \"canonical\" or \"raw\", or a function of your own",
        ),
        (quote!(fingerprint = 1), "`fingerprint` takes"),
        (quote!(required(true)), "write `required` to turn it on"),
        (
            quote!(max_body = "1 megabyte"),
            "write \"1MiB\" (1024² bytes each) or \"1MB\" (1000²)",
        ),
        (
            quote!(header = "Authorization"),
            "`Authorization` has a meaning of its own",
        ),
        (
            quote!(header = "content-type"),
            "`content-type` has a meaning of its own",
        ),
        (
            quote!(header = "Cookie"),
            "`Cookie` has a meaning of its own",
        ),
        (quote!(header = "X Key"), "the character ' '"),
        (quote!(header = "X-Key:"), "the character ':'"),
        (quote!(header = ""), "an empty name"),
        (
            quote!(header = X_KEY),
            "`header` takes the name of a request header in quotes",
        ),
        (quote!(headers = []), "`headers` lists nothing"),
        (quote!(headers = ["a b"]), "the character ' '"),
        (quote!(headers = ["X-A", "x-a"]), "\"x-a\" twice"),
        (
            quote!(headers = ["Idempotency-Key"]),
            "the header of the key itself",
        ),
        (
            quote!(header = "X-Key", headers = ["x-key"]),
            "the header of the key itself",
        ),
        (quote!(headers = "X-A"), "`headers` takes a list"),
        (quote!(headers = [1]), "`headers` lists strings"),
        (quote!(release_on = [99]), "from 400 to 599: write"),
        (quote!(release_on = [600]), "from 400 to 599: write"),
        (quote!(release_on = [99999999]), "from 400 to 599: write"),
        (quote!(release_on = ["503"]), "from 400 to 599: write"),
        (
            quote!(release_on = [200]),
            "with 200 a success would not be kept",
        ),
        (
            quote!(release_on = [399, 429]),
            "with 399 a success would not be kept",
        ),
        (quote!(release_on = [503, 429, 503]), "503 twice"),
        (
            quote!(release_on = 503),
            "`release_on` takes a list of status codes",
        ),
        (quote!(ignore = []), "`ignore` lists nothing"),
        (quote!(ignore = [""]), "the whole body"),
        (quote!(ignore = ["client_ts"]), "write \"/client_ts\""),
        (quote!(ignore = ["$.meta.ts"]), "write \"/meta/ts\""),
        (quote!(ignore = ["/a~b"]), "`~` is written `~0`"),
        (quote!(ignore = ["/a~"]), "`~` is written `~0`"),
        (quote!(ignore = ["/a", "/a"]), "\"/a\" twice"),
        (
            quote!(ignore = ["/a"], fingerprint = "raw"),
            "contradicts `fingerprint = \"raw\"`",
        ),
        (
            quote!(ignore = ["/a"], fingerprint = digest),
            "contradicts a `fingerprint` function",
        ),
        (quote!(max_body = 0), "`max_body` is zero"),
        (quote!(max_body = "0KiB"), "`max_body` is zero"),
        (quote!(max_body = "1M"), "write \"1MiB\" (1024² bytes each)"),
        (quote!(max_response = "2GiB"), "over 1GiB"),
        (
            quote!(max_response = big),
            "`max_response` takes a size in quotes",
        ),
        (
            quote!(reconcile = "a::b"),
            "write `reconcile = a::b`, without quotes",
        ),
        (
            quote!(reconcile = 7),
            "`reconcile` takes the path of an `async fn(Abandoned) -> Resolution`",
        ),
        (
            quote!(reconcile = a, abandoned = "rerun"),
            "contradicts `reconcile`",
        ),
        (
            quote!(crate = idem),
            "write `crate = ::idem` for a dependency",
        ),
        (quote!(crate = self::idem), "takes an absolute path"),
        (
            quote!(crate = "idem"),
            "write `crate = ::idem`, without quotes",
        ),
        (quote!(crate = 7), "`crate` takes the absolute path"),
    ] {
        let complaint = complaint(options.clone());
        assert!(complaint.contains(part), "{options}: {complaint}");
    }
}

#[test]
fn a_transaction_is_an_argument_by_name() {
    let (kinds, complaints) = validate(
        quote!(scope = "user", ttl = "24h", transaction = tx),
        quote!(
            async fn f(a: A, mut tx: &mut PgConnection, b: B) -> String {}
        ),
        |route| {
            let kinds: Vec<_> = route
                .signature
                .args
                .iter()
                .map(|arg| match arg {
                    Arg::Extracted(ty) => ty.to_token_stream().to_string(),
                    Arg::Connection(ty) => format!("lent {}", ty.to_token_stream()),
                })
                .collect();
            kinds
        },
    );
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(kinds.unwrap(), ["A", "lent PgConnection", "B"]);

    // A raw name is the same name.
    let (_, complaints) = validate(
        quote!(scope = "user", ttl = "24h", transaction = tx),
        quote!(
            async fn f(r#tx: &mut PgConnection) -> String {}
        ),
        |_| (),
    );
    assert_eq!(complaints, Vec::<String>::new());
}

#[test]
fn a_bad_transaction_has_one_complaint() {
    let lent = quote!(
        async fn f(a: A, tx: &mut C) -> String {}
    );
    for (item, options, part) in [
        (
            lent.clone(),
            quote!(),
            "write `transaction = tx` in `#[idempotent]`",
        ),
        (
            lent.clone(),
            quote!(transaction = "tx"),
            "write `transaction = tx`, without quotes",
        ),
        (
            lent.clone(),
            quote!(transaction),
            "write `transaction = tx`",
        ),
        (
            lent.clone(),
            quote!(transaction = a::tx),
            "`transaction` takes the name of an argument",
        ),
        (
            lent.clone(),
            quote!(transaction = tx, abandoned = "hold"),
            "`abandoned` contradicts `transaction`",
        ),
        (
            lent.clone(),
            quote!(transaction = tx, reconcile = ask),
            "`reconcile` contradicts `transaction`",
        ),
        (
            lent,
            quote!(transaction = tx, on_store_error = "run"),
            "`on_store_error` = \"run\" contradicts `transaction`",
        ),
        (
            quote!(
                async fn f(a: A, conn: A) -> String {}
            ),
            quote!(transaction = con),
            "`f` has no argument named `con`: did you mean `conn`?",
        ),
        (
            quote!(
                async fn f(a: A) -> String {}
            ),
            quote!(transaction = tx),
            "`f` has no argument named `tx`: add one, as in `tx: &mut PgConnection`",
        ),
        (
            quote!(
                async fn f(tx: &C) -> String {}
            ),
            quote!(transaction = tx),
            "write `&mut C`",
        ),
        (
            quote!(
                async fn f(tx: C) -> String {}
            ),
            quote!(transaction = tx),
            "write `&mut PgConnection`",
        ),
        (
            quote!(
                async fn f(tx: &'static mut C) -> String {}
            ),
            quote!(transaction = tx),
            "remove the lifetime",
        ),
        (
            quote!(
                async fn f(tx: &mut C, other: &mut C) -> String {}
            ),
            quote!(transaction = tx),
            "only the transaction does, and that is `tx`",
        ),
        (
            quote!(
                async fn f(C { a }: &mut C) -> String {}
            ),
            quote!(),
            "take the value itself",
        ),
    ] {
        let complaint = complaint_about(item.clone(), options.clone());
        assert!(complaint.contains(part), "{options} {item}: {complaint}");
    }
}

#[test]
fn each_bad_signature_has_one_complaint() {
    for (item, part) in [
        (
            quote!(
                fn f() -> String {}
            ),
            "write `async fn f`",
        ),
        (
            quote!(
                const async fn f() -> String {}
            ),
            "cannot be `const`",
        ),
        (
            quote!(
                async unsafe fn f() -> String {}
            ),
            "cannot be `unsafe`",
        ),
        (
            quote!(
                async extern "C" fn f() -> String {}
            ),
            "remove `extern`",
        ),
        (
            quote!(
                async fn f<T>() -> String {}
            ),
            "cannot be generic",
        ),
        (
            quote!(
                async fn f<'a>() -> String {}
            ),
            "cannot be generic",
        ),
        (
            quote!(
                async fn f() -> String
                where
                    u8: Copy,
                {
                }
            ),
            "remove the `where` clause",
        ),
        (
            quote!(
                async fn f(&self) -> String {}
            ),
            "a handler has no `self`",
        ),
        (
            quote!(
                async fn f(self: Box<Self>) -> String {}
            ),
            "a handler has no `self`",
        ),
        (
            quote!(
                async fn f(a: impl A) -> String {}
            ),
            "instead of `impl …`",
        ),
        (
            quote!(
                async fn f(a: web::Json<impl A>) -> String {}
            ),
            "instead of `impl …`",
        ),
        (
            quote!(
                async fn f(a: web::Json<Self>) -> String {}
            ),
            "instead of `Self`",
        ),
        (
            quote!(
                async fn f() -> Self {}
            ),
            "instead of `Self`",
        ),
        (
            quote!(
                async fn f(#[cfg(unix)] a: A) -> String {}
            ),
            "cannot be conditional",
        ),
        (
            quote!(
                async fn f() {}
            ),
            "such as `-> HttpResponse`",
        ),
        (
            quote!(
                #[get("/")]
                async fn f() -> String {}
            ),
            "only safe methods",
        ),
        (
            quote!(
                #[actix_web::head("/")]
                async fn f() -> String {}
            ),
            "only safe methods",
        ),
        (
            quote!(
                #[route("/", method = "GET")]
                async fn f() -> String {}
            ),
            "only safe methods",
        ),
        (
            quote!(
                #[route("/", method = "GET", name = "x", method = "TRACE")]
                async fn f() -> String {}
            ),
            "only safe methods",
        ),
        (
            quote!(
                #[routes]
                #[options("/")]
                async fn f() -> String {}
            ),
            "only safe methods",
        ),
        (
            quote!(
                #[idem_runtime::idempotent(scope = "user")]
                async fn f() -> String {}
            ),
            "stands on this handler twice",
        ),
        (
            quote!(
                async fn f(
                    a: A,
                    b: A,
                    c: A,
                    d: A,
                    e: A,
                    f: A,
                    g: A,
                    h: A,
                    i: A,
                    j: A,
                    k: A,
                    l: A,
                    m: A,
                ) -> String {
                }
            ),
            "at most 12 extractors",
        ),
    ] {
        let complaint = complaint_about(item.clone(), quote!());
        assert!(complaint.contains(part), "{item}: {complaint}");
    }
}

#[test]
fn signatures_that_actix_takes_are_accepted() {
    for item in [
        quote!(
            async fn f() -> String {}
        ),
        quote!(
            async fn f() -> impl Responder {}
        ),
        quote!(
            async fn f() -> Result<impl Responder, E> {}
        ),
        quote!(
            async fn f(
                a: A,
                b: A,
                c: A,
                d: A,
                e: A,
                f: A,
                g: A,
                h: A,
                i: A,
                j: A,
                k: A,
                l: A,
            ) -> String {
            }
        ),
        quote!(
            async fn f(web::Json(mut a): web::Json<A>, _: B, (c, d): (C, D)) -> String {}
        ),
        quote!(
            #[routes]
            #[get("/")]
            #[post("/")]
            async fn f() -> String {}
        ),
        quote!(
            #[route("/", method = "GET", method = "POST")]
            async fn f() -> String {}
        ),
        quote!(
            #[route("/", method = "PURGE")]
            async fn f() -> String {}
        ),
        quote!(
            #[delete("/")]
            async fn f() -> String {}
        ),
        // Not to be read by us: actix complains.
        quote!(
            #[route]
            async fn f() -> String {}
        ),
        // No attribute of actix, in spite of its last name.
        quote!(
            #[a::b::get("/")]
            async fn f() -> String {}
        ),
    ] {
        let (_, complaints) = validate(quote!(scope = "user", ttl = "24h"), item.clone(), |_| ());
        assert_eq!(complaints, Vec::<String>::new(), "{item}");
    }
    // The transaction is no extractor.
    let (_, complaints) = validate(
        quote!(scope = "user", ttl = "24h", transaction = m),
        quote!(
            async fn f(
                a: A,
                b: A,
                c: A,
                d: A,
                e: A,
                f: A,
                m: &mut C,
                g: A,
                h: A,
                i: A,
                j: A,
                k: A,
                l: A,
            ) -> String {
            }
        ),
        |_| (),
    );
    assert_eq!(complaints, Vec::<String>::new());
}
