import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Requests with several values in places of credentials: all of them together are one login.
@Suite struct CredentialTests {
    private static let places: [AccountSource.Credential] = [
        .header("Authorization"), .header("X-User-Id"), .query("token"), .query("user"), .cookie("session"),
        .cookie("csrf"),
    ]

    private func credential(_ target: String, _ headers: HeaderFields) -> Credential? {
        Credential(of: RequestHead("POST", target, headers: headers), at: Self.places)
    }

    /// The backend decides about the request by the same values in the same places and in the same order.
    @Test func theQuestionCarriesWhatTheRequestCarries() throws {
        let all = try #require(
            credential(
                "/send?user=2&x=1&token=a%20b",
                ["Cookie": "csrf=1; theme=dark; session=s", "X-User-Id": "alice", "Authorization": "Bearer t"]))
        let question = all.question("/me")
        #expect(question.target == "/me?user=2&token=a%20b")
        #expect(question.headers["Cookie"] == ["csrf=1; session=s"])
        #expect(question.headers["Authorization"] == ["Bearer t"] && question.headers["X-User-Id"] == ["alice"])
        #expect(RequestHead("POST", "/send?user=2&x=1&token=a%20b").target(without: all) == "/send?x=1")

        let pair = try #require(credential("/", ["Authorization": "Bearer t", "Cookie": "session=s"]))
        #expect(pair.question("/me").headers["Cookie"] == ["session=s"] && pair.neededQuery == nil)
        let token = try #require(credential("/?token=t", ["Cookie": "session=s"]))
        #expect(token.neededQuery == "token=t" && token.fields.first("Authorization") == nil)
        // A token alone is sent as a field, which backends do not log.
        let alone = try #require(credential("/?token=t", [:]))
        #expect(alone.neededQuery == nil && alone.fields["Authorization"] == ["Bearer t"])
        #expect(alone.digest == credential("/", ["Authorization": "Bearer t"])?.digest)
    }

    @Test func everyValueCountsForTheDigest() throws {
        let heads: [(String, HeaderFields)] = [
            ("/", ["Authorization": "Bearer t"]), ("/", ["Authorization": "Bearer t", "X-User-Id": "alice"]),
            ("/", ["Authorization": "Bearer t", "X-User-Id": "bob"]),
            ("/", ["Authorization": "Bearer t", "Cookie": "session=s"]),
            ("/", ["Authorization": "Bearer t", "Cookie": "csrf=s"]), ("/?token=s", ["Authorization": "Bearer t"]),
            ("/?user=s", ["Authorization": "Bearer t"]), ("/?user=s&token=s", ["Authorization": "Bearer t"]),
        ]
        let digests = try heads.map { try #require(credential($0.0, $0.1)).digest }
        #expect(Set(digests).count == heads.count)
        // The order of fields has no meaning.
        #expect(
            credential("/", ["X-User-Id": "a", "Authorization": "t"])?.digest
                == credential("/", ["Authorization": "t", "X-User-Id": "a"])?.digest)
    }

    /// Gateway and backend could take different values of one place.
    @Test(
        arguments: [
            ("/?token=a&token=b", [:]), ("/?token=a&tok%65n=b", [:]), ("/?token=a;token=b", [:]), ("/?token=%zz", [:]),
            ("/", ["Authorization": "a", "authorization": "b"]), ("/", ["X-User-Id": "a", "X_User_Id": "b"]),
            ("/", ["X_User_Id": "b", "Authorization": "a"]), ("/", ["Cookie": "session=a; session=b"]),
            ("/", ["Cookie": "session=a", "cookie": "session =b"]),
        ] as [(String, HeaderFields)])
    func severalValuesInOnePlaceAreNone(_ target: String, _ headers: HeaderFields) {
        #expect(credential(target, headers) == nil)
    }

    @Test func otherPartsOfTheRequestDoNotCount() throws {
        let head: HeaderFields = ["Cookie": "sessions=1; xsession=2", "X-User": "a"]
        #expect(credential("/?tokens=a&q=%zz", head) == nil)
        #expect(credential("/?token%73=a&q=token", ["X-User-Id": "a"])?.neededQuery == nil)
    }

    // MARK: A backend that needs two values

    private func world() throws -> JSONWorld {
        var mapping = Mapping.lab
        mapping.account.credentials = [.header("Authorization"), .header("X-User-Id")]
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.backend.needsUserID = true
        for name in ["alice", "bob", "carol", "eve"] {
            #expect(world.send("GET", "/me", as: "t-\(name)", fields: [("X-User-Id", name)])?.status == 200)
        }
        return world
    }

    @Test func aTextIsSealedAndSentWithBoth() throws {
        let world = try world()
        let sent = world.send(
            "POST", "/c/all", as: "t-alice", #"{"id":"1","text":"two values"}"#, fields: [("X-User-Id", "alice")])
        #expect(sent?.status == 201, "\(sent?.text ?? "")")
        #expect(!world.backend.hasReceived("two values"))
        let read = world.send("GET", "/c/all", as: "t-bob", fields: [("X-User-Id", "bob")])
        #expect(read?["messages[0].data.text"] == "two values")
    }

    /// One of two values, or the name of another, is a login for nobody, and no text goes out unsealed.
    @Test func aPartIsNoLogin() throws {
        let world = try world()
        let body = #"{"id":"1","text":"whose is it"}"#
        for fields in [[], [("X-User-Id", "bob")]] {
            #expect(world.send("POST", "/c/all", as: "t-alice", body, fields: fields)?.status == 401)
        }
        #expect(world.backend.messages.isEmpty && !world.backend.hasReceived("whose is it"))
    }

    /// The backend's precedence decides, so its answer names the account: here that of the header.
    @Test func theBackendChoosesBetweenTwoLogins() throws {
        var mapping = Mapping.lab
        mapping.account.credentials = [.header("Authorization"), .cookie("session")]
        let world = try JSONWorld(.hosted, mapping: mapping)
        for name in ["alice", "bob", "carol", "eve"] { world.send("GET", "/me", as: "t-\(name)") }
        let sent = world.send(
            "POST", "/c/all", as: "t-alice", #"{"id":"1","text":"by alice"}"#, fields: [("Cookie", "session=t-bob")])
        #expect(sent?.status == 201, "\(sent?.text ?? "")")
        #expect(world.backend.messages["all"]?.first?.sender == "alice" && !world.backend.hasReceived("by alice"))
        #expect(world.send("GET", "/c/all", as: "t-bob")?["messages[0].data.text"] == "by alice")
    }

    /// A name and a password in one field, as HTTP Basic has them.
    @Test func aBasicLoginIsOneValue() throws {
        let basic = try #require(credential("/", ["Authorization": "Basic YWxpY2U6a2V5"]))
        #expect(basic.question("/me").headers["Authorization"] == ["Basic YWxpY2U6a2V5"])
    }
}
