async fn pay(
    __request: ::idem_runtime::__private::HttpRequest,
    __payload: ::idem_runtime::__private::Payload,
) -> ::core::result::Result<
    ::idem_runtime::__private::HttpResponse,
    ::idem_runtime::__private::Error,
> {
    async fn pay(payment: web::Json<Payment>) -> impl Responder {
        HttpResponse::Ok()
    }
    ::idem_runtime::__private::assert_extractor::<web::Json<Payment>>();
    {
        static __ROUTE: ::idem_runtime::__private::Route = ::idem_runtime::__private::Route::new(
            ::core::concat!(::core::module_path!(), "::", "pay"),
            ::core::file!(),
            ::core::line!(),
            ::idem_runtime::__private::Policy::new(
                    ::idem_runtime::__private::Scope::Named(&["tenant", "user"]),
                    5400000u64,
                )
                .required()
                .key_format(::idem_runtime::__private::KeyFormat::Uuid)
                .header("x-request-key")
                .wait_ms(5000u64)
                .lease_ms(45000u64)
                .reconcile(|__abandoned| ::idem_runtime::__private::reconcile(
                    gateway::ask,
                    __abandoned,
                ))
                .mismatch(::idem_runtime::__private::Mismatch::Conflict)
                .server_error(::idem_runtime::__private::ServerError::Release)
                .release_on(&[429u16, 503u16])
                .fingerprint(::idem_runtime::__private::FingerprintMode::Canonical)
                .ignore(&["/client_ts", "/items/*/trace"])
                .headers(&["accept-version"])
                .max_body(65536)
                .max_response(1000)
                .on_store_error(::idem_runtime::__private::OnStoreError::Run),
        );
        ::idem_runtime::__private::submit! {
            & __ROUTE
        }
        ::idem_runtime::__private::run(
                &__ROUTE,
                __request,
                __payload,
                |(__arg0,)| pay(__arg0),
            )
            .await
    }
}
