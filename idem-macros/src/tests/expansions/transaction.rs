async fn create_order(
    __request: ::idem_runtime::__private::HttpRequest,
    __payload: ::idem_runtime::__private::Payload,
) -> ::core::result::Result<
    ::idem_runtime::__private::HttpResponse,
    ::idem_runtime::__private::Error,
> {
    async fn create_order(
        user: AuthUser,
        tx: &mut sqlx::PgConnection,
        mut order: web::Json<NewOrder>,
    ) -> Result<HttpResponse, ApiError> {
        Ok(HttpResponse::Created().finish())
    }
    ::idem_runtime::__private::assert_extractor::<AuthUser>();
    ::idem_runtime::__private::assert_connection::<sqlx::PgConnection>();
    ::idem_runtime::__private::assert_extractor::<web::Json<NewOrder>>();
    ::idem_runtime::__private::assert_responder::<Result<HttpResponse, ApiError>>();
    {
        static __ROUTE: ::idem_runtime::__private::Route = ::idem_runtime::__private::Route::new(
            ::core::concat!(::core::module_path!(), "::", "create_order"),
            ::core::file!(),
            ::core::line!(),
            ::idem_runtime::__private::Policy::new(
                    ::idem_runtime::__private::Scope::Principal(
                        ::idem_runtime::__private::principal::<Owner<Tenant, User>>,
                    ),
                    86400000u64,
                )
                .fingerprint(::idem_runtime::__private::FingerprintMode::Custom(digest))
                .transaction(
                    ::idem_runtime::__private::transactions::<sqlx::PgConnection>,
                ),
        );
        ::idem_runtime::__private::submit! {
            & __ROUTE
        }
        ::idem_runtime::__private::run_in_transaction(
                &__ROUTE,
                __request,
                __payload,
                async |(__arg0, __arg2), __connection: &mut sqlx::PgConnection| {
                    let __finished = ::idem_runtime::__private::Finished(
                        create_order(__arg0, __connection, __arg2).await,
                    );
                    let __refused = __finished.is_refused();
                    (__finished.0, __refused)
                },
            )
            .await
    }
}
