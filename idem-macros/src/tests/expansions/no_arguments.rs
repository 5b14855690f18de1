async fn r#move(
    __request: crate::reexports::idem::__private::HttpRequest,
    __payload: crate::reexports::idem::__private::Payload,
) -> ::core::result::Result<
    crate::reexports::idem::__private::HttpResponse,
    crate::reexports::idem::__private::Error,
> {
    async fn r#move() -> &'static str {
        "moved"
    }
    crate::reexports::idem::__private::assert_responder::<&'static str>();
    {
        static __ROUTE: crate::reexports::idem::__private::Route = crate::reexports::idem::__private::Route::new(
            ::core::concat!(::core::module_path!(), "::", "move"),
            ::core::file!(),
            ::core::line!(),
            crate::reexports::idem::__private::Policy::new(
                crate::reexports::idem::__private::Scope::Global,
                86400000u64,
            ),
        );
        crate::reexports::idem::__private::submit! {
            & __ROUTE
        }
        crate::reexports::idem::__private::run(
                &__ROUTE,
                __request,
                __payload,
                |()| r#move(),
            )
            .await
    }
}
