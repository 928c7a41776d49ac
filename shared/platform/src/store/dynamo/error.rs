//! Maps DynamoDB's errors to `StoreError`.

use aws_sdk_dynamodb::error::{BuildError, DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::batch_get_item::BatchGetItemError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::get_item::GetItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::query::QueryError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::CancellationReason;

use crate::store::{ConditionFailed, StoreError};

/// A request that failed.
pub(super) enum RequestFailure {
    Get(SdkError<GetItemError>),
    Batch(SdkError<BatchGetItemError>),
    Put(SdkError<PutItemError>),
    Delete(SdkError<DeleteItemError>),
    Update(SdkError<UpdateItemError>),
    Query(SdkError<QueryError>),
    Transaction(SdkError<TransactWriteItemsError>),
}

/// The request could not be built, which is a bug; nothing was sent.
pub(super) fn malformed(error: BuildError) -> StoreError {
    StoreError::Unavailable(format!("cannot build request: {error}"))
}

pub(super) fn failed(failed: RequestFailure) -> StoreError {
    match failed {
        RequestFailure::Get(error) => by_code(&error),
        RequestFailure::Batch(error) => by_code(&error),
        RequestFailure::Query(error) => by_code(&error),
        RequestFailure::Update(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(found)) => one_refused(found.item()),
            Some(_) | None => by_code(&error),
        },
        RequestFailure::Put(error) => match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(found)) => one_refused(found.item()),
            Some(_) | None => by_code(&error),
        },
        RequestFailure::Delete(error) => match error.as_service_error() {
            Some(DeleteItemError::ConditionalCheckFailedException(found)) => one_refused(found.item()),
            Some(_) | None => by_code(&error),
        },
        RequestFailure::Transaction(error) => match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                cancelled_for(cancelled.cancellation_reasons())
            }
            Some(_) | None => by_code(&error),
        },
    }
}

type SdkRequestError = std::collections::HashMap<String, aws_sdk_dynamodb::types::AttributeValue>;

fn one_refused(item: Option<&SdkRequestError>) -> StoreError {
    StoreError::ConditionFailed(vec![Some(refused(item))])
}

/// The existing row. Its key attributes stay in it; callers ignore them.
fn refused(item: Option<&SdkRequestError>) -> ConditionFailed {
    ConditionFailed { found: item.filter(|item| !item.is_empty()).map(|item| item.clone().into()) }
}

/// A failed condition takes precedence over errors that can be retried.
fn cancelled_for(reasons: &[CancellationReason]) -> StoreError {
    let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
    let codes: Vec<String> = reasons.iter().map(code).collect();
    let any = |wanted: &str| codes.iter().any(|code| code == wanted);
    if any("ConditionalCheckFailed") {
        let one =
            |reason: &CancellationReason| (code(reason) == "ConditionalCheckFailed").then(|| refused(reason.item()));
        return StoreError::ConditionFailed(reasons.iter().map(one).collect());
    }
    if any("TransactionConflict") {
        return StoreError::TransactionConflict;
    }
    if any("ThrottlingError") || any("ProvisionedThroughputExceeded") {
        return StoreError::Throttled;
    }
    let messages: Vec<&str> = reasons.iter().filter_map(CancellationReason::message).collect();
    if any("ValidationError") || any("ItemCollectionSizeLimitExceeded") {
        return StoreError::TooLarge(format!("DynamoDB rejects the write: {}", messages.join("; ")));
    }
    StoreError::Unavailable(format!("the transaction was cancelled: {}", codes.join(", ")))
}

fn by_code<E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static>(error: &SdkError<E>) -> StoreError {
    match error.code() {
        Some(
            "TransactionConflictException" | "TransactionInProgressException" | "ReplicatedWriteConflictException",
        ) => StoreError::TransactionConflict,
        Some(
            "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException"
            | "LimitExceededException",
        ) => StoreError::Throttled,
        Some("ValidationException") if error.message().is_some_and(|message| message.contains("size")) => {
            StoreError::TooLarge(format!("DynamoDB rejects the write: {}", error.message().unwrap_or_default()))
        }
        Some(_) | None => StoreError::Unavailable(DisplayErrorContext(error).to_string()),
    }
}
