import Foundation
import NIOSupport
import Outbox
import PawlConfiguration
import RequestQueue
import StorePort
import Testing

@testable import pawl

/// Scripts compare the codes of failures.
@Suite struct FailureCodeTests {
    @Test func codesHaveOneForm() {
        let refusals: [ActRefusal] = [
            .noSuchRequest(1), .done(1), .dead(1, cause: nil), .cancelled(1, cause: nil), .inFlight(1), .notOpened(1),
            .dropping(1), .notHeld(1), .nothingHeld, .notDead(1, .done), .notRepeatable(1, .openedAlready), .lost(1),
            .queue(.unknown), .notStored, .later, .otherOwner,
        ]
        let errors: [StoreError] = [
            .locked(""), .missing(""), .corrupt(""), .wrongKey(""), .unusableKey(""), .rolledBack(""),
            .tooNew(found: 2, known: 1), .unavailable(""), .unknown(""), .fenced, .epochLost(.only),
        ]
        let codes = FailureCode.allCases.map(\.rawValue) + refusals.map(\.code) + errors.map(\.code)
        for code in codes { #expect(code.wholeMatch(of: /[a-z]+(-[a-z]+)*/) != nil, "\(code)") }
        #expect(Set(codes).count == codes.count)
        for refusal in refusals { #expect(refusal.text.hasSuffix(".") && !refusal.text.hasSuffix("..")) }
    }

    @Test func everyErrorOfAStartHasACode() {
        let problem = ConfigurationError.Problem(code: .syntax, message: "")
        #expect(FailureCode.of(ConfigurationError(problems: [problem])) == "configuration-refused")
        #expect(FailureCode.of(StoreError.locked("")) == "store-locked")
        #expect(FailureCode.of(QueueStoreError("", isDamage: true)) == "queue-damaged")
        #expect(FailureCode.of(QueueStoreError("")) == "queue-unavailable")
        #expect(FailureCode.of(AdminFailure(.noStore, "")) == "no-store")
        #expect(FailureCode.of(AdminFailure(.dead(7, cause: "x."))) == "request-dead")
    }

    /// An answer of an older gateway has no code.
    @Test func anAnswerWithoutACodeIsRead() throws {
        let answer = try JSONDecoder().decode(
            AdminAnswer.self, from: Data(#"{"exit":1,"out":"","error":"It failed."}"#.utf8))
        #expect(answer.code == nil && answer.error == "It failed.")
    }
}
