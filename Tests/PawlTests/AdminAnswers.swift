@testable import pawl

extension AdminAnswer {
    /// The code of the failure; nil if there is none.
    var failure: FailureCode? { code.flatMap(FailureCode.init) }
}
