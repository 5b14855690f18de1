/// Takes an order.
#[post("/api/v1/orders")]
pub(crate) async fn create_order(
    __request: ::idem_runtime::__private::HttpRequest,
    __payload: ::idem_runtime::__private::Payload,
) -> ::core::result::Result<
    ::idem_runtime::__private::HttpResponse,
    ::idem_runtime::__private::Error,
> {
    #[tracing::instrument(skip(order))]
    async fn create_order(
        user: AuthUser,
        order: web::Json<NewOrder>,
    ) -> Result<HttpResponse, ApiError> {
        Ok(HttpResponse::Created().json(order.save(user).await?))
    }
    ::idem_runtime::__private::assert_extractor::<AuthUser>();
    ::idem_runtime::__private::assert_extractor::<web::Json<NewOrder>>();
    ::idem_runtime::__private::assert_responder::<Result<HttpResponse, ApiError>>();
    {
        static __ROUTE: ::idem_runtime::__private::Route = ::idem_runtime::__private::Route::new(
            ::core::concat!(::core::module_path!(), "::", "create_order"),
            ::core::file!(),
            ::core::line!(),
            ::idem_runtime::__private::Policy::new(
                ::idem_runtime::__private::Scope::Named(&["user"]),
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
                |(__arg0, __arg1)| create_order(__arg0, __arg1),
            )
            .await
    }
}
