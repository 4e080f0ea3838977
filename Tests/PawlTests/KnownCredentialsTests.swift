import HTTPCodec
import JSONGateway
import RequestQueue
import RequestQueueClient
import Testing

@testable import pawl

/// Which credential a write is sent with, and what a refusal means.
@Suite struct KnownCredentialsTests {
    private let places = [AccountSource.Credential.header("Authorization")]
    private let known = KnownCredentials(CredentialCache())

    private func credential(_ token: String) throws -> Credential {
        let head = RequestHead("GET", "/", headers: ["Authorization": "Bearer \(token)"])
        return try #require(Credential(of: head, at: places))
    }

    /// A device of alice has shown its token, which is also its mark here.
    @discardableResult
    private func show(_ token: String) throws -> (digest: CredentialCache.Digest, key: SessionKey) {
        let credential = try credential(token)
        let key = SessionKey(headers: [.init("Authorization", "Bearer \(token)")])
        known.remember(token, of: "alice", credential.digest, key)
        return (credential.digest, key)
    }

    @Test func aFirstAttemptWithARefusedCredentialHasFailed() throws {
        let one = try show("one")
        #expect(!known.waits(for: "one", refused: one.key, attempts: 1))
        #expect(known.key("one") == nil)
    }

    /// The write of one device waits through an outage, and by then both logins of the account have ended.
    @Test func whenAllLoginsHaveEndedAWriteWaitsForAnother() throws {
        let (one, two) = (try show("one"), try show("two"))
        #expect(known.waits(for: "one", refused: one.key, attempts: 2))
        let other = try #require(known.another(of: "alice", than: two.digest))
        #expect(other.0 == two.digest)
        // It is sent with that one, which is refused as well.
        #expect(known.waits(for: "one", refused: two.key, attempts: 3))
        #expect(known.another(of: "alice", than: two.digest) == nil, "none is tried for ever")
        #expect(known.key("two") == nil)
        try show("three")
        #expect(known.another(of: "alice", than: nil)?.1 == SessionKey(bearer: "three"))
    }

    /// After a restart a write is sent with another credential of its account. Meanwhile its own device appears.
    @Test func aCredentialIsNotBlamedForAnother() throws {
        let two = try show("two")
        #expect(known.key("one") == nil)
        let one = try show("one")
        #expect(known.waits(for: "one", refused: two.key, attempts: 1))
        #expect(known.key("one") == one.key)
    }
}
