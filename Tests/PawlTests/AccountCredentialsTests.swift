import HTTPCodec
import JSONGateway
import Protection
import RequestQueue
import RequestQueueClient
import Synchronization
import Testing

@testable import pawl

/// Which credential a write is sent with, what a refusal means, and what is stored of it.
@Suite struct AccountCredentialsTests {
    private struct WrongAccount: Error {}

    /// Marks plaintext with the account, which it is bound to.
    private struct Sealer: SessionSealing {
        func seal(_ plaintext: [UInt8], tenant: String) throws -> [UInt8] { Array("\(tenant):".utf8) + plaintext }

        func open(_ sealed: [UInt8], tenant: String) throws -> [UInt8] {
            guard sealed.starts(with: "\(tenant):".utf8) else { throw WrongAccount() }
            return Array(sealed.dropFirst(tenant.utf8.count + 1))
        }
    }

    private let cache = CredentialCache()
    private let credentials: AccountCredentials

    /// All writes were accepted at the time 0, which it still is.
    init() { credentials = AccountCredentials(cache, sealer: Sealer()) { 0 } }

    private func credential(_ token: String) throws -> Credential {
        let head = RequestHead("GET", "/", headers: ["Authorization": "Bearer \(token)"])
        return try #require(Credential(of: head, at: [.header("Authorization")]))
    }

    /// A device has shown its token, which is also its mark here.
    @discardableResult
    private func show(
        _ token: String, cookies: [String]? = nil, by account: String = "alice",
        to credentials: AccountCredentials? = nil
    ) throws -> Bool {
        let credential = try credential(token)
        return (credentials ?? self.credentials).show(credential, token, cookies: cookies, by: account)
    }

    private func write(_ mark: String?, attempts: Int = 1, by account: String = "alice") -> APIClientQueueRequest {
        var request = QueuedRequest(
            id: 1, token: RequestToken(number: 1), tenant: account, lane: nil,
            payload: .http(APIRequestConfig(method: .post, path: "/")), creates: [], dependsOn: [], identifiers: nil,
            idempotencyKey: "", coalescingKey: nil, metadata: mark.map { Array($0.utf8) }, timestamp: 0)
        request.setProgress(
            state: .inFlight, attempts: attempts, crashes: 0, doubts: 0, lease: 1, notBefore: 0, isHeld: false,
            cause: nil, size: 100)
        return APIClientQueueRequest(request)
    }

    private func key(_ token: String) -> SessionKey { SessionKey(bearer: token) }

    /// What the next process makes of what this one has stored.
    private func next(_ account: String = "alice") throws -> AccountCredentials {
        let stored = try #require(credentials.sealed(of: account))
        return AccountCredentials(CredentialCache(), sealer: Sealer(), stored: [ExactText(account): stored])
    }

    // MARK: Which

    @Test func aWriteIsSentWithTheCredentialThatCameWithIt() throws {
        try show("one", cookies: ["a=1", "b=2"])
        try show("two")
        let own = try #require(credentials.key(for: write("one")))
        #expect(own.headers.first == .init("Authorization", "Bearer one"))
        #expect(own.headers.dropFirst() == [.init("Cookie", "a=1"), .init("Cookie", "b=2")])
        #expect(credentials.key(for: write("two")) == key("two"))
        // The cookies of one device's requests are not for the writes of another.
        try show("one", cookies: ["a=3"])
        #expect(credentials.key(for: write("unknown")) == key("one"))
        #expect(credentials.key(for: write(nil)) == key("one"))
    }

    @Test func noWriteIsSentUnderTheLoginOfAnotherUser() throws {
        try show("one")
        #expect(credentials.key(for: write("one", by: "bob")) == nil)
        #expect(!credentials.hasKey("bob"))
        try show("two", by: "bob")
        #expect(credentials.key(for: write("one", by: "bob")) == key("two"))
        #expect(credentials.refused(key("one"), for: write("one", by: "bob")) == .isSentAgain)
        #expect(credentials.key(for: write("one")) == key("one"), "it was refused to nobody whose it is")
        // Names are exact bytes.
        try show("three", by: "zo\u{EB}")
        #expect(credentials.key(for: write("three", by: "zoe\u{308}")) == nil)
    }

    // MARK: Refusals

    @Test func aFirstAttemptWithARefusedCredentialHasFailed() throws {
        try show("one")
        let digest = try credential("one").digest
        cache.remember(.account(.services("alice")), of: digest, now: 0)
        #expect(credentials.refused(key("one"), for: write("one")) == .fails)
        #expect(cache.owner(of: digest, now: 0) == .unknown, "its account is looked up again")
        #expect(!credentials.hasKey("alice"))
        // Another write of this login is sent as well: the backend's answer is for its client.
        #expect(credentials.key(for: write("one")) == key("one"))
        #expect(credentials.refused(key("one"), for: write("one")) == .fails)
    }

    /// The first device's login has ended, which is no reason to send its new write under the second one's.
    @Test func aFirstAttemptFailsAlsoIfTheAccountHasAnotherLogin() throws {
        for token in ["two", "one"] { try show(token) }
        #expect(credentials.refused(key("one"), for: write("one")) == .fails)
        #expect(credentials.key(for: write("two")) == key("two"))
    }

    /// The write of one device waits through an outage, and by then both logins of the account have ended.
    @Test func whenAllLoginsHaveEndedAWriteWaitsForAnother() throws {
        for token in ["one", "two"] { try show(token) }
        #expect(credentials.refused(key("one"), for: write("one", attempts: 2)) == .isSentAgain)
        #expect(credentials.key(for: write("one")) == key("two"))
        #expect(credentials.refused(key("two"), for: write("one", attempts: 3)) == .waits, "none is tried for ever")
        #expect(!credentials.hasKey("alice"))
        #expect(try show("three"), "the queue is notified")
        #expect(credentials.key(for: write("one")) == key("three"))
    }

    /// The backend was down, and the circuit breaker let nothing of this write through. By then its login has expired.
    @Test func aWriteThatHasWaitedWithoutAnAttemptWaitsForALogin() throws {
        let now = Mutex(AccountCredentials.waited)
        let credentials = AccountCredentials(cache, sealer: Sealer()) { now.withLock { $0 } }
        try show("one", to: credentials)
        #expect(credentials.refused(key("one"), for: write("one")) == .fails, "its client still waits")
        try show("one", to: credentials)
        now.withLock { $0 += 1 }
        #expect(credentials.refused(key("one"), for: write("one")) == .waits)
        #expect(try show("two", to: credentials))
        #expect(credentials.key(for: write("one")) == key("two"))
        // With another login of its account it is sent again at once.
        try show("one", to: credentials)
        #expect(credentials.refused(key("one"), for: write("one")) == .isSentAgain)
    }

    /// An operator sends a dead write again, days after its login has expired. Nobody waits for the answer.
    @Test func aWriteThatIsSentAgainWaitsForALogin() throws {
        let credentials = AccountCredentials(cache, sealer: Sealer(), clock: { 0 }, isNew: { _ in false })
        try show("one", to: credentials)
        #expect(credentials.refused(key("one"), for: write("one")) == .waits)
        #expect(try show("two", to: credentials))
        #expect(credentials.key(for: write("one")) == key("two"))
    }

    @Test func theSameLoginCountsAgainOnceItIsShown() throws {
        try show("one")
        #expect(credentials.refused(key("one"), for: write("one", attempts: 2)) == .waits)
        #expect(try show("one"))
        #expect(credentials.hasKey("alice"))
        #expect(credentials.key(for: write("one")) == key("one"))
    }

    /// After a restart a write is sent with another credential of its account. Meanwhile its own device appears.
    @Test func aCredentialIsNotBlamedForAnother() throws {
        try show("two")
        #expect(credentials.key(for: write("one")) == key("two"))
        try show("one")
        #expect(credentials.refused(key("two"), for: write("one")) == .isSentAgain)
        #expect(credentials.key(for: write("one")) == key("one"))
    }

    /// While a write is under way its device comes with other cookies; the refusal is that of the old ones.
    @Test func aKeyThatWasReplacedRefusesNothing() throws {
        try show("one", cookies: ["a=1"])
        let old = try #require(credentials.key(for: write("one")))
        try show("one", cookies: ["a=2"])
        #expect(credentials.refused(old, for: write("one")) == .isSentAgain)
        #expect(credentials.hasKey("alice"))
    }

    // MARK: The store

    @Test func devicesThatWriteInTurnChangeNothing() throws {
        #expect(try show("one"))
        #expect(try show("two"))
        let stored = credentials.sealed(of: "alice")
        for number in 0..<10 {
            for token in ["one", "two"] { #expect(try !show(token, cookies: ["a=\(number)"])) }
        }
        #expect(credentials.sealed(of: "alice") == stored)
    }

    @Test func theNextProcessSendsAWriteWithItsOwnCredential() throws {
        for token in ["one", "two", "three"] { try show(token, cookies: ["a=1"]) }
        #expect(credentials.refused(key("two"), for: write("two", attempts: 2)) == .isSentAgain)
        let next = try next()
        #expect(next.accounts == ["alice"] && next.hasKey("alice"))
        // Without the cookies, which are not stored.
        #expect(next.key(for: write("one")) == key("one"))
        #expect(next.key(for: write("three")) == key("three"))
        #expect(next.key(for: write("two")) == key("three"), "what was refused is not stored")
        #expect(try !show("one", to: next), "it is known")
        for token in ["one", "three"] { _ = next.refused(key(token), for: write(token, attempts: 2)) }
        #expect(next.sealed(of: "alice") == nil)
    }

    /// A write that waited may be sent with another credential of its account, whose client then repeats it.
    @Test func theMarkIsThatOfTheCredentialThatWasSent() throws {
        try show("one")
        try show("two", cookies: ["a=1"])
        #expect(credentials.metadata(of: write("one"), sentWith: key("one")) == nil)
        #expect(credentials.metadata(of: write("one", attempts: 2), sentWith: key("two")) == Array("two".utf8))
        let sent = try #require(credentials.key(for: write("two")))
        #expect(credentials.metadata(of: write("two"), sentWith: sent) == nil, "the cookies are not counted")
        #expect(credentials.metadata(of: write("one"), sentWith: sent) == Array("two".utf8))
        #expect(credentials.metadata(of: write("one"), sentWith: key("unknown")) == nil)
        #expect(credentials.metadata(of: write("one", by: "bob"), sentWith: key("two")) == nil)
    }

    /// A login is no write: it says nothing about the cookies of writes that wait.
    @Test func aLoginKeepsTheCookiesOfWritesThatWait() throws {
        try show("one", cookies: ["a=1"])
        let withCookies = try #require(credentials.key(for: write("one")))
        #expect(withCookies != key("one"))
        #expect(try !show("one"))
        #expect(credentials.key(for: write("one")) == withCookies)
        // The same after another device's login, and after a refusal.
        try show("two")
        #expect(try !show("one"))
        #expect(credentials.key(for: write("one")) == withCookies)
        _ = credentials.refused(withCookies, for: write("one", attempts: 2))
        #expect(try show("one"))
        #expect(credentials.key(for: write("one")) == withCookies)
        // A later write decides.
        try show("one", cookies: [])
        #expect(credentials.key(for: write("one")) == key("one"))
    }

    @Test func inMemoryNothingIsStored() throws {
        let memory = AccountCredentials(cache)
        try show("one", to: memory)
        #expect(!memory.isStored && memory.sealed(of: "alice") == nil && memory.hasKey("alice"))
    }

    @Test func whatCannotBeOpenedIsLeftOut() throws {
        try show("one")
        let stored = try #require(credentials.sealed(of: "alice"))
        let next = AccountCredentials(cache, sealer: Sealer(), stored: ["bob": stored, "eve": [], "alice": stored])
        #expect(next.accounts == ["alice"])
    }

    /// One key without a mark. Until stored form 3 of requests, one for the query was a header field.
    @Test(arguments: [
        SessionKey(bearer: "one"), SessionKey(query: "access_token=one"),
        SessionKey(headers: [.init("pawl-credential-in-query", "access_token=one")]),
    ]) func keysOfAnEarlierVersionAreRead(_ stored: SessionKey) throws {
        let bytes = try Sealer().seal(stored.bytes, tenant: "alice")
        let credentials = AccountCredentials(cache, sealer: Sealer(), stored: ["alice": bytes])
        let expected = stored.headers.first?.name == "Authorization" ? stored : SessionKey(query: "access_token=one")
        #expect(credentials.key(for: write("one")) == expected)
        // From now on it is its device's.
        guard expected == stored, stored.query == nil else { return }
        #expect(try show("one", to: credentials))
        let sealed = try #require(credentials.sealed(of: "alice"))
        let opened = StoredCredentials(bytes: try Sealer().open(sealed, tenant: "alice"))
        #expect(opened.entries == [.init(mark: "one", key: key("one"))])
    }

    @Test func theStoredFormIsReadBackAndDamageIsSafe() {
        let entries: [StoredCredentials.Entry] = [
            .init(mark: nil, key: SessionKey(query: "a=b")), .init(mark: "one", key: key("one")),
            .init(mark: String(repeating: "m", count: 255), key: SessionKey(headers: [.init("a", "b")], query: "c=d")),
        ]
        let bytes = StoredCredentials(entries: entries).bytes
        #expect(StoredCredentials(bytes: bytes).entries == entries)
        for count in 0..<bytes.count {
            let read = StoredCredentials(bytes: Array(bytes.prefix(count))).entries
            #expect(count < 5 || read == Array(entries.prefix(read.count)), "\(count)")
        }
    }

    // MARK: Limits

    @Test func anAccountHasOnlySoManyCredentials() throws {
        for number in 0...AccountCredentials.limitPerAccount { try show("t\(number)") }
        #expect(credentials.key(for: write("t1")) == key("t1"))
        #expect(credentials.key(for: write("t0")) == key("t\(AccountCredentials.limitPerAccount)"))
        // The one that was shown last stays.
        try show("t1")
        try show("new")
        #expect(credentials.key(for: write("t1")) == key("t1"))
        #expect(credentials.key(for: write("t2")) == key("new"))
    }

    @Test func thereAreOnlySoManyAccounts() throws {
        let credential = try credential("one")
        for number in 0...AccountCredentials.limit { _ = credentials.show(credential, "one", by: "\(number)") }
        #expect(credentials.accounts.count == AccountCredentials.limit)
        #expect(!credentials.hasKey("0") && credentials.key(for: write("one", by: "0")) == nil)
        #expect(credentials.hasKey("1"))
        #expect(credentials.refused(key("one"), for: write("one", by: "0")) == .waits)
    }
}
