import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import Protection
import Testing

/// Requests in somebody else's name, as application services make them.
@Suite struct ActingAsTests {
    private static let places: [AccountSource.Credential] = [.header("Authorization"), .query("token")]

    private func head(_ target: String) -> RequestHead {
        RequestHead("PUT", target, headers: ["Authorization": "Bearer service"])
    }

    @Test func theNameIsPartOfTheQuestionAndOfWhatIsRemembered() throws {
        let plain = try #require(Credential(of: head("/send?x=1"), at: Self.places, actingAs: "user_id"))
        let ghost = try #require(
            Credential(of: head("/send?x=1&user%5Fid=%40br_x:a"), at: Self.places, actingAs: "user_id"))
        #expect(plain.acting == nil && ghost.acting == "user_id=%40br_x%3Aa")
        #expect(plain.digest != ghost.digest)
        #expect(ghost == Credential(of: head("/other?user_id=@br_x:a"), at: Self.places, actingAs: "user_id"))
        // Where the mapping does not say so, it is any query.
        #expect(Credential(of: head("/send?user_id=@br_x:a"), at: Self.places)?.digest == plain.digest)
    }

    /// Which of two names the backend takes, nobody knows.
    @Test(arguments: ["user_id=a&user_id=b", "user_id=a&user%5fid=b", "user_id=%zz", "user_id=a;user_id=b"])
    func anAmbiguousNameIsNobody(_ query: String) {
        #expect(Credential(of: head("/send?\(query)"), at: Self.places, actingAs: "user_id") == nil)
        #expect(Credential(of: head("/send?q=%zz"), at: Self.places, actingAs: "user_id") != nil)
    }

    /// A service writes in bob's name: the backend is asked whose it is under that name, and people can read it.
    @Test func whatIsWrittenIsReadUnderTheNameThatItIsWrittenIn() throws {
        var mapping = Mapping.lab
        mapping.account.actingAs = "user_id"
        let world = try JSONWorld(.hosted, mapping: mapping)
        world.backend.actors = ["service"]
        world.backend.people.insert("service")
        world.send("GET", "/me", as: "t-alice")
        let sent = world.send("POST", "/c/all?user_id=bob", as: "t-service", #"{"id":"1","text":"from a bridge"}"#)
        #expect(sent?.status == 201)
        #expect(world.backend.messages["all"]?.first?.sender == "bob")
        #expect(!world.backend.hasReceived("from a bridge"))
        let read = world.send("GET", "/c/all", as: "t-alice")
        #expect(read?["messages[0].data.text"] == "from a bridge", "\(read?.text ?? "")")
        // He has shown no login of his own, so nobody takes him for a reader of what is sealed.
        #expect(
            world.send("POST", "/c/pair", as: "t-alice", #"{"id":"2","text":"to him"}"#)?["error"] == "pawl_outsider")
    }
}
