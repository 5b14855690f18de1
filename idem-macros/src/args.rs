//! Parses what stands between the parentheses of `#[idempotent(…)]`.
//!
//! One table, [`OPTIONS`], drives the names, the suggestions for misspelt ones and the hints on how
//! to write each. Parsing goes on after a mistake, at the next comma, so that all are found.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    Lit, LitInt, LitStr, Token, TypePath,
    ext::IdentExt,
    parse::{ParseStream, Parser, discouraged::Speculative},
    token,
};

use crate::diagnostics::{Errors, nearest, one_of};

/// An option of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opt {
    Scope,
    Ttl,
    Required,
    KeyFormat,
    Header,
    Transaction,
    Wait,
    Lease,
    Abandoned,
    Reconcile,
    Mismatch,
    ServerError,
    ReleaseOn,
    Fingerprint,
    Ignore,
    Headers,
    MaxBody,
    MaxResponse,
    OnStoreError,
    Crate,
}

/// How an option is written.
pub(crate) struct Spec {
    pub(crate) opt: Opt,
    pub(crate) name: &'static str,
    /// What it takes, as in "`ttl` takes …".
    takes: &'static str,
    /// An example to copy.
    example: &'static str,
}

/// Every option there is.
pub(crate) const OPTIONS: [Spec; 20] = [
    Spec {
        opt: Opt::Scope,
        name: "scope",
        takes: "the name of a scope in quotes, or the path of a type that implements `Principal`",
        example: r#"scope = "user""#,
    },
    Spec {
        opt: Opt::Ttl,
        name: "ttl",
        takes: "a duration in quotes",
        example: r#"ttl = "24h""#,
    },
    Spec {
        opt: Opt::Required,
        name: "required",
        takes: "no value",
        example: "required",
    },
    Spec {
        opt: Opt::KeyFormat,
        name: "key_format",
        takes: "the name of a format in quotes",
        example: r#"key_format = "uuid""#,
    },
    Spec {
        opt: Opt::Header,
        name: "header",
        takes: "the name of a request header in quotes",
        example: r#"header = "X-Request-Key""#,
    },
    Spec {
        opt: Opt::Transaction,
        name: "transaction",
        takes: "the name of an argument of the handler",
        example: "transaction = tx",
    },
    Spec {
        opt: Opt::Wait,
        name: "wait",
        takes: "a duration in quotes",
        example: r#"wait = "5s""#,
    },
    Spec {
        opt: Opt::Lease,
        name: "lease",
        takes: "a duration in quotes",
        example: r#"lease = "30s""#,
    },
    Spec {
        opt: Opt::Abandoned,
        name: "abandoned",
        takes: "one of two words in quotes",
        example: r#"abandoned = "hold""#,
    },
    Spec {
        opt: Opt::Reconcile,
        name: "reconcile",
        takes: "the path of an `async fn(Abandoned) -> Resolution`",
        example: "reconcile = ask_gateway",
    },
    Spec {
        opt: Opt::Mismatch,
        name: "mismatch",
        takes: "a status code",
        example: "mismatch = 422",
    },
    Spec {
        opt: Opt::ServerError,
        name: "server_error",
        takes: "one of two words in quotes",
        example: r#"server_error = "keep""#,
    },
    Spec {
        opt: Opt::ReleaseOn,
        name: "release_on",
        takes: "a list of status codes",
        example: "release_on = [425, 429]",
    },
    Spec {
        opt: Opt::Fingerprint,
        name: "fingerprint",
        takes: "\"canonical\", \"raw\" or the path of a `fn(&RequestParts<'_>) -> Vec<u8>`",
        example: r#"fingerprint = "canonical""#,
    },
    Spec {
        opt: Opt::Ignore,
        name: "ignore",
        takes: "a list of JSON pointers in quotes",
        example: r#"ignore = ["/client_ts"]"#,
    },
    Spec {
        opt: Opt::Headers,
        name: "headers",
        takes: "a list of request headers in quotes",
        example: r#"headers = ["Accept-Version"]"#,
    },
    Spec {
        opt: Opt::MaxBody,
        name: "max_body",
        takes: "a size in quotes or a number of bytes",
        example: r#"max_body = "1MiB""#,
    },
    Spec {
        opt: Opt::MaxResponse,
        name: "max_response",
        takes: "a size in quotes or a number of bytes",
        example: r#"max_response = "1MiB""#,
    },
    Spec {
        opt: Opt::OnStoreError,
        name: "on_store_error",
        takes: "one of two words in quotes",
        example: r#"on_store_error = "refuse""#,
    },
    Spec {
        opt: Opt::Crate,
        name: "crate",
        takes: "the absolute path under which `idem_runtime` is known",
        example: "crate = ::idem_runtime",
    },
];

impl Opt {
    fn spec(self) -> &'static Spec {
        // The table has one row per variant, in their order; a test checks it.
        &OPTIONS[self as usize]
    }

    pub(crate) fn name(self) -> &'static str {
        self.spec().name
    }

    pub(crate) fn example(self) -> &'static str {
        self.spec().example
    }
}

/// The value of an option, sorted by its form but not by its meaning.
pub(crate) enum Value {
    Str(LitStr),
    Int(LitInt),
    Path(TypePath),
    /// The elements of `[…]` and the brackets themselves.
    List(Vec<Value>, TokenTree),
    /// Well-formed tokens of no form that any option takes.
    Other(TokenStream),
}

impl quote::ToTokens for Value {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        match self {
            Value::Str(literal) => literal.to_tokens(tokens),
            Value::Int(literal) => literal.to_tokens(tokens),
            Value::Path(path) => path.to_tokens(tokens),
            Value::List(_, brackets) => brackets.to_tokens(tokens),
            Value::Other(other) => other.to_tokens(tokens),
        }
    }
}

/// What follows the name of an option.
pub(crate) enum Form {
    /// Nothing: a flag.
    Flag,
    /// `= value`.
    Value(Value),
    /// Something unusable, which has been reported.
    Broken,
}

/// An option as the user wrote it.
pub(crate) struct Given {
    pub(crate) opt: Opt,
    /// The user's token, for errors that concern the option as such.
    pub(crate) name: Ident,
    pub(crate) form: Form,
}

/// All options as the user wrote them: none of them need be there or make sense.
#[derive(Default)]
pub(crate) struct Args {
    given: Vec<Given>,
}

impl Args {
    /// Parses the options, reporting every slip of syntax, unknown names and repeated names.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                args.parse_one(input, errors);
                if !input.is_empty() && !skip_comma(input) {
                    after_value(input, errors);
                }
            }
            Ok(())
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.absorb(error);
        }
        args
    }

    fn parse_one(&mut self, input: ParseStream<'_>, errors: &mut Errors) {
        let Ok(name) = input.call(Ident::parse_any) else {
            let start = input.span();
            let found = until_comma(input);
            errors.at_tokens_or(
                found,
                start,
                format_args!(
                    "expected an option such as `{}`: every value needs the name of its option",
                    Opt::Scope.example()
                ),
            );
            return;
        };
        let Some(spec) = OPTIONS.iter().find(|spec| name == spec.name) else {
            unknown(&name, errors);
            until_comma(input);
            return;
        };
        let form = parse_form(input, &name, spec, errors);
        if self.get(spec.opt).is_some() {
            errors.at(&name, format_args!("`{name}` is given twice: keep one"));
            return;
        }
        self.given.push(Given {
            opt: spec.opt,
            name,
            form,
        });
    }

    /// The option, if the user wrote it.
    pub(crate) fn get(&self, opt: Opt) -> Option<&Given> {
        self.given.iter().find(|given| given.opt == opt)
    }

    /// The value of the option. One written without a value is reported.
    pub(crate) fn value(&self, opt: Opt, errors: &mut Errors) -> Option<&Value> {
        let given = self.get(opt)?;
        match &given.form {
            Form::Value(value) => Some(value),
            Form::Flag => {
                errors.at(
                    &given.name,
                    format_args!("`{}` needs a value: write `{}`", given.name, opt.example()),
                );
                None
            }
            Form::Broken => None,
        }
    }

    /// The value of an option that takes nothing but a string.
    pub(crate) fn string(&self, opt: Opt, errors: &mut Errors) -> Option<&LitStr> {
        match self.value(opt, errors)? {
            Value::Str(literal) => Some(literal),
            value => {
                wrong_form(opt, value, errors);
                None
            }
        }
    }

    /// The elements of an option that takes a list.
    pub(crate) fn list(&self, opt: Opt, errors: &mut Errors) -> Option<(&[Value], &TokenTree)> {
        match self.value(opt, errors)? {
            Value::List(elements, brackets) => Some((elements, brackets)),
            value => {
                wrong_form(opt, value, errors);
                None
            }
        }
    }

    /// Whether a flag is set. One written with a value is reported.
    pub(crate) fn flag(&self, opt: Opt, errors: &mut Errors) -> bool {
        match self.get(opt).map(|given| &given.form) {
            Some(Form::Flag | Form::Broken) => true,
            Some(Form::Value(value)) => {
                takes_no_value(opt, value, errors);
                true
            }
            None => false,
        }
    }
}

/// Reports a value of a form that the option does not take.
pub(crate) fn wrong_form(opt: Opt, value: &Value, errors: &mut Errors) {
    let Spec {
        name,
        takes,
        example,
        ..
    } = opt.spec();
    errors.at(
        value,
        format_args!("`{name}` takes {takes}: write `{example}`"),
    );
}

fn takes_no_value(opt: Opt, value: impl quote::ToTokens, errors: &mut Errors) {
    errors.at(
        value,
        format_args!(
            "`{name}` takes no value: write `{name}` to turn it on, leave it out otherwise",
            name = opt.name()
        ),
    );
}

fn unknown(name: &Ident, errors: &mut Errors) {
    let spelt = name.unraw().to_string();
    let names = || OPTIONS.iter().map(|spec| spec.name);
    match nearest(&spelt, names()) {
        Some(meant) => errors.at(
            name,
            format_args!("unknown option `{spelt}`: did you mean `{meant}`?"),
        ),
        None => errors.at(
            name,
            format_args!(
                "unknown option `{spelt}`: the options are {}",
                one_of(names())
            ),
        ),
    }
}

fn parse_form(input: ParseStream<'_>, name: &Ident, spec: &Spec, errors: &mut Errors) -> Form {
    if at_end(input) {
        return Form::Flag;
    }
    let Ok(equals) = input.parse::<Token![=]>() else {
        let found = until_comma(input);
        if spec.opt == Opt::Required {
            takes_no_value(spec.opt, found, errors);
            return Form::Broken;
        }
        errors.at(
            found,
            format_args!("expected `=` after `{name}`: write `{}`", spec.example),
        );
        return Form::Broken;
    };
    if at_end(input) {
        errors.at(
            equals,
            format_args!("`{name}` needs a value: write `{}`", spec.example),
        );
        return Form::Broken;
    }
    Form::Value(parse_value(input))
}

/// Parses one value. Whatever has no form of its own is kept as tokens up to the next comma.
fn parse_value(input: ParseStream<'_>) -> Value {
    let ahead = input.fork();
    if let Some(value) = parse_known(&ahead)
        && (at_end(&ahead) || at_next_option(&ahead))
    {
        input.advance_to(&ahead);
        return value;
    }
    Value::Other(until_comma(input))
}

fn parse_known(input: ParseStream<'_>) -> Option<Value> {
    if input.peek(Lit) {
        return match input.parse().ok()? {
            Lit::Str(literal) if literal.suffix().is_empty() => Some(Value::Str(literal)),
            Lit::Int(literal) if literal.suffix().is_empty() => Some(Value::Int(literal)),
            _ => None,
        };
    }
    if input.peek(token::Bracket) {
        let brackets: TokenTree = input.parse().ok()?;
        let TokenTree::Group(group) = &brackets else {
            return None;
        };
        let elements = parse_elements.parse2(group.stream()).ok()?;
        return Some(Value::List(elements, brackets));
    }
    input.parse().ok().map(Value::Path)
}

fn parse_elements(input: ParseStream<'_>) -> syn::Result<Vec<Value>> {
    let mut elements = Vec::new();
    while !input.is_empty() {
        elements.push(parse_value(input));
        skip_comma(input);
    }
    Ok(elements)
}

/// Reports what stands between a value and the next comma.
fn after_value(input: ParseStream<'_>, errors: &mut Errors) {
    if at_next_option(input) {
        errors.at_span(input.span(), "expected a comma before the next option");
    } else {
        let found = until_comma(input);
        errors.at(found, "expected a comma after the option");
        skip_comma(input);
    }
}

/// Whether the current argument ends here.
fn at_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

/// Whether `name = ` or a last flag follows, which tells a missing comma from a broken value.
fn at_next_option(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead
        .call(Ident::parse_any)
        .is_ok_and(|name| OPTIONS.iter().any(|spec| name == spec.name))
        && (ahead.peek(Token![=]) || at_end(&ahead))
}

fn skip_comma(input: ParseStream<'_>) -> bool {
    input.parse::<Token![,]>().is_ok()
}

fn until_comma(input: ParseStream<'_>) -> TokenStream {
    let mut tokens = TokenStream::new();
    while !at_end(input) {
        let Ok(token) = input.parse::<TokenTree>() else {
            break;
        };
        tokens.extend([token]);
    }
    tokens
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use quote::quote;

    use super::*;

    /// Parses and gives the names in order, with the complaints.
    fn parse(tokens: TokenStream) -> (Vec<&'static str>, Vec<String>) {
        let mut errors = Errors::default();
        let args = Args::parse(tokens, &mut errors);
        let names = args.given.iter().map(|given| given.opt.name()).collect();
        (names, errors.messages())
    }

    #[test]
    fn the_table_has_each_option_at_its_place() {
        for (index, spec) in OPTIONS.iter().enumerate() {
            assert_eq!(spec.opt as usize, index, "{}", spec.name);
            assert!(spec.example.starts_with(spec.name), "{}", spec.name);
        }
        assert_eq!(Opt::Crate as usize + 1, OPTIONS.len());
    }

    #[test]
    fn reads_options_in_any_order_with_or_without_a_last_comma() {
        let (names, complaints) =
            parse(quote!(required, ttl = "1h", crate = ::a, scope = B<C, D>,));
        assert_eq!(names, ["required", "ttl", "crate", "scope"]);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(parse(quote!()), (vec![], vec![]));
    }

    #[test]
    fn sorts_values_by_form() {
        let mut errors = Errors::default();
        let args = Args::parse(
            quote! {
                scope = a::B, ttl = "1h", mismatch = 422, release_on = [1, "a", b,],
                header = -x, wait = 1.5, max_body = 1u8, key_format = "a"b, lease = b"x", abandoned = true,
                ignore = [a b, "c"], headers = f(1)
            },
            &mut errors,
        );
        assert_eq!(errors.messages(), Vec::<String>::new());
        let value = |opt| match &args.get(opt).unwrap().form {
            Form::Value(value) => value,
            _ => panic!("{opt:?} has no value"),
        };
        assert!(matches!(value(Opt::Scope), Value::Path(_)));
        assert!(matches!(value(Opt::Ttl), Value::Str(_)));
        assert!(matches!(value(Opt::Mismatch), Value::Int(_)));
        match value(Opt::ReleaseOn) {
            Value::List(elements, _) => assert!(matches!(
                elements.as_slice(),
                [Value::Int(_), Value::Str(_), Value::Path(_)]
            )),
            _ => panic!("not a list"),
        }
        match value(Opt::Ignore) {
            Value::List(elements, _) => assert!(matches!(
                elements.as_slice(),
                [Value::Other(_), Value::Str(_)]
            )),
            _ => panic!("not a list"),
        }
        for opt in [
            Opt::Header,
            Opt::Wait,
            Opt::MaxBody,
            Opt::KeyFormat,
            Opt::Lease,
            Opt::Abandoned,
            Opt::Headers,
        ] {
            assert!(matches!(value(opt), Value::Other(_)), "{opt:?}");
        }
    }

    #[test]
    fn goes_on_after_each_mistake() {
        let (names, complaints) = parse(quote! {
            tll = "24h", "user", scope("user"), ttl: "1h", required, required, lease =, , header == "a",
            unheard_of, max_body = "1MiB" max_response = "1MiB", wait = "1s" + 1
        });
        assert_eq!(
            names,
            [
                "scope",
                "ttl",
                "required",
                "lease",
                "header",
                "max_body",
                "max_response",
                "wait"
            ]
        );
        let beginnings = [
            "unknown option `tll`: did you mean `ttl`?",
            "expected an option such as `scope = \"user\"`",
            "expected `=` after `scope`: write `scope = \"user\"`",
            "expected `=` after `ttl`: write `ttl = \"24h\"`",
            "`required` is given twice",
            "`lease` needs a value: write `lease = \"30s\"`",
            "expected an option such as",
            "unknown option `unheard_of`: the options are `scope`, `ttl`",
            "expected a comma before the next option",
        ];
        assert_eq!(complaints.len(), beginnings.len(), "{complaints:#?}");
        for (complaint, beginning) in complaints.iter().zip(beginnings) {
            assert!(complaint.starts_with(beginning), "{complaint:?}");
        }
    }

    #[test]
    fn suggests_the_option_that_was_probably_meant() {
        for (written, meant) in [
            ("tll", "ttl"),
            ("TTL", "ttl"),
            ("scopes", "scope"),
            ("requierd", "required"),
            ("keyformat", "key_format"),
            ("max_bodys", "max_body"),
            ("on_store_err", "on_store_error"),
            ("fingerprints", "fingerprint"),
        ] {
            assert_eq!(
                nearest(written, OPTIONS.iter().map(|spec| spec.name)),
                Some(meant),
                "{written}"
            );
        }
        for written in ["x", "timeout", "expires_after", "store"] {
            assert_eq!(
                nearest(written, OPTIONS.iter().map(|spec| spec.name)),
                None,
                "{written}"
            );
        }
    }
}
