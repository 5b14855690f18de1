/// Documented.
#[cfg(feature = "orders")]
#[cfg_attr(feature = "docs", doc = "More.", deprecated)]
#[allow(clippy::unused_async)]
#[expect(unused_variables)]
#[deprecated = "use v2"]
#[must_use]
#[utoipa::path(responses((status = 201)))]
#[actix_web::post("/a")]
async fn f(
    __request: ::idem_runtime::__private::HttpRequest,
    __payload: ::idem_runtime::__private::Payload,
) -> ::core::result::Result<
    ::idem_runtime::__private::HttpResponse,
    ::idem_runtime::__private::Error,
> {
    #[cfg_attr(feature = "docs", tracing::instrument(skip_all))]
    #[cfg_attr(feature = "trace", tracing::instrument(skip_all))]
    #[inline]
    #[my::own]
    async fn f((a, b): (A, B), web::Json(mut c): web::Json<C>, r#type: D) -> String {
        String::new()
    }
    ::idem_runtime::__private::assert_extractor::<(A, B)>();
    ::idem_runtime::__private::assert_extractor::<web::Json<C>>();
    ::idem_runtime::__private::assert_extractor::<D>();
    ::idem_runtime::__private::assert_responder::<String>();
    {
        static __ROUTE: ::idem_runtime::__private::Route = ::idem_runtime::__private::Route::new(
            ::core::concat!(::core::module_path!(), "::", "f"),
            ::core::file!(),
            ::core::line!(),
            ::idem_runtime::__private::Policy::new(
                ::idem_runtime::__private::Scope::Global,
                86400000u64,
            ),
        );
        ::idem_runtime::__private::submit! {
            & __ROUTE
        }
        ::idem_runtime::__private::run(
                &__ROUTE,
                __request,
                __payload,
                |(__arg0, __arg1, __arg2)| f(__arg0, __arg1, __arg2),
            )
            .await
    }
}
