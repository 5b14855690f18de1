//! The attribute as a function from tokens to tokens: all stages together.
//!
//! The expansions are kept as formatted Rust files in `tests/expansions`, to be read as code. After
//! a change that is meant, run the tests with `IDEM_BLESS=1` and read the difference; without it, a
//! test that fails leaves what it got beside the expected file, as `*.actual.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod corpus;
mod entry;

use std::{fs, path::PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

use crate::stages::attribute;

/// Compares an expansion with the file of that name. Options that the runtime cannot honour yet
/// are expanded too.
fn expands_as(name: &str, args: TokenStream, item: TokenStream) {
    let expansion = attribute(args, item);
    let file = syn::parse2(expansion).expect("the expansion is Rust");
    let actual = prettyplease::unparse(&file);
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/expansions");
    let expected_path = folder.join(format!("{name}.rs"));
    let actual_path = folder.join(format!("{name}.actual.rs"));
    if std::env::var_os("IDEM_BLESS").is_some() {
        fs::write(&expected_path, &actual).unwrap();
    }
    if fs::read_to_string(&expected_path).is_ok_and(|expected| expected == actual) {
        let _ = fs::remove_file(&actual_path);
    } else {
        fs::write(&actual_path, &actual).unwrap();
        panic!(
            "the expansion is not that of {}: compare it with {}",
            expected_path.display(),
            actual_path.display()
        );
    }
}

fn contains_word(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => contains_word(group.stream(), word),
        TokenTree::Ident(ident) => ident == word,
        _ => false,
    })
}

/// The messages in the `compile_error!`s of an expansion.
fn messages(tokens: TokenStream) -> Vec<String> {
    let mut messages = Vec::new();
    let mut after_error = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ref ident) if ident == "compile_error" => after_error = true,
            TokenTree::Group(group) if after_error => {
                let message: syn::LitStr = syn::parse2(group.stream()).unwrap();
                messages.push(message.value());
                after_error = false;
            }
            _ => {}
        }
    }
    messages
}

#[test]
fn the_common_case() {
    expands_as(
        "common",
        quote!(scope = "user", ttl = "24h"),
        quote! {
            /// Takes an order.
            #[post("/api/v1/orders")]
            #[tracing::instrument(skip(order))]
            pub(crate) async fn create_order(
                user: AuthUser,
                order: web::Json<NewOrder>,
            ) -> Result<HttpResponse, ApiError> {
                Ok(HttpResponse::Created().json(order.save(user).await?))
            }
        },
    );
}

#[test]
fn every_option() {
    expands_as(
        "every_option",
        quote! {
            scope = "tenant:user",
            ttl = "1h 30m",
            required,
            key_format = "uuid",
            header = "X-Request-Key",
            wait = "5s",
            lease = "45s",
            reconcile = gateway::ask,
            mismatch = 409,
            server_error = "release",
            release_on = [429, 503],
            fingerprint = "canonical",
            ignore = ["/client_ts", "/items/*/trace"],
            headers = ["Accept-Version"],
            max_body = "64KiB",
            max_response = 1000,
            on_store_error = "run",
        },
        quote! {
            async fn pay(payment: web::Json<Payment>) -> impl Responder {
                HttpResponse::Ok()
            }
        },
    );
}

#[test]
fn a_transaction() {
    expands_as(
        "transaction",
        quote!(scope = Owner<Tenant, User>, ttl = "24h", transaction = tx, fingerprint = digest),
        quote! {
            async fn create_order(
                user: AuthUser,
                tx: &mut sqlx::PgConnection,
                mut order: web::Json<NewOrder>,
            ) -> Result<HttpResponse, ApiError> {
                Ok(HttpResponse::Created().finish())
            }
        },
    );
}

#[test]
fn attributes_are_sorted() {
    expands_as(
        "attributes",
        quote!(scope = "global", ttl = "24h"),
        quote! {
            /// Documented.
            #[cfg(feature = "orders")]
            #[cfg_attr(feature = "docs", doc = "More.", tracing::instrument(skip_all), deprecated)]
            #[cfg_attr(feature = "trace", tracing::instrument(skip_all))]
            #[allow(clippy::unused_async)]
            #[expect(unused_variables)]
            #[deprecated = "use v2"]
            #[must_use]
            #[utoipa::path(responses((status = 201)))]
            #[actix_web::post("/a")]
            #[inline]
            #[my::own]
            async fn f((a, b): (A, B), web::Json(mut c): web::Json<C>, r#type: D) -> String {
                String::new()
            }
        },
    );
}

#[test]
fn no_arguments_and_a_raw_name() {
    expands_as(
        "no_arguments",
        quote!(
            scope = "global",
            ttl = "24h",
            crate = crate::reexports::idem
        ),
        quote! {
            async fn r#move() -> &'static str { "moved" }
        },
    );
}

#[test]
fn after_a_mistake_in_an_option_the_handler_is_as_it_was() {
    expands_as(
        "fallback_option",
        quote!(scope = "user", ttl = "24"),
        quote! {
            #[post("/orders")]
            #[tracing::instrument]
            async fn create_order(user: AuthUser) -> HttpResponse { body() }
        },
    );
}

#[test]
fn after_a_mistake_in_the_signature_a_stand_in_takes_the_name() {
    expands_as(
        "fallback_signature",
        quote!(scope = "user", ttl = "24h"),
        quote! {
            #[post("/orders")]
            #[tracing::instrument]
            pub fn create_order<T: Handler>(user: T) { body() }
        },
    );
}

#[test]
fn the_body_is_not_parsed() {
    let expansion = attribute(
        quote!(scope = "user", ttl = "24h"),
        quote!(async fn f() -> String { let half = ; if { @ # 12 async } }),
    );
    assert_eq!(messages(expansion.clone()), Vec::<String>::new());
    assert!(contains_word(expansion, "half"));
}

#[test]
fn another_path_of_the_runtime_replaces_the_default() {
    let item = quote!(
        async fn f(a: A, tx: &mut C) -> String {
            String::new()
        }
    );
    let args = quote! {
        scope = "user:tenant", ttl = "24h", required, key_format = "any", header = "X-Key",
        transaction = tx, wait = "1s", lease = "1s", mismatch = 422, server_error = "keep",
        release_on = [], fingerprint = "canonical", ignore = ["/a"], headers = ["X-A"],
        max_body = 1, max_response = 0, on_store_error = "refuse"
    };
    let by_default = attribute(args.clone(), item.clone());
    assert!(contains_word(by_default, "idem_runtime"));
    let renamed = attribute(quote!(#args, crate = ::other), item);
    assert_eq!(messages(renamed.clone()), Vec::<String>::new());
    assert!(!contains_word(renamed, "idem_runtime"));
}

#[test]
fn every_mistake_is_reported_at_once() {
    let expansion = attribute(
        quote!(scope = "", tll = "24h", max_body = "1M", wait = "0s"),
        quote!(
            unsafe fn f<T>(tx: &mut C, b: impl B) {}
        ),
    );
    let found = messages(expansion);
    for part in [
        "unknown option `tll`",
        "`scope` is empty",
        "`ttl` is missing",
        "`wait` must be longer than zero",
        "`max_body` has an unknown unit",
        "a handler is asynchronous",
        "cannot be `unsafe`",
        "cannot be generic",
        "`transaction = tx`",
        "instead of `impl …`",
        "returns nothing",
    ] {
        assert!(
            found.iter().any(|message| message.contains(part)),
            "{part:?} is not among {found:#?}"
        );
    }
    assert_eq!(found.len(), 11, "{found:#?}");
}

#[test]
fn an_item_that_is_no_function_is_emitted_with_all_errors() {
    let expansion = attribute(
        quote!(ttl = "24h"),
        quote!(
            pub struct Orders;
        ),
    );
    let found = messages(expansion.clone());
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("`scope` is missing"), "{found:#?}");
    assert!(found[1].contains("not on a `struct`"), "{found:#?}");
    assert!(contains_word(expansion, "Orders"));
}

#[test]
fn values_may_come_through_a_macro() {
    // `$ttl:expr` and `$owner:ty` arrive in invisible groups.
    let ttl = proc_macro2::Group::new(proc_macro2::Delimiter::None, quote!("24h"));
    let owner = proc_macro2::Group::new(proc_macro2::Delimiter::None, quote!(my::Owner));
    let expansion = attribute(
        quote!(scope = #owner, ttl = #ttl),
        quote!(
            async fn f() -> String {
                String::new()
            }
        ),
    );
    assert_eq!(messages(expansion), Vec::<String>::new());
}
