import Devices
import DoubleRatchet
import Envelope
import TestKit
import Testing

/// The two forms of contact cards: whole, byte by byte, cut, too long, altered.
@Suite struct CardFormTests {
    private static func root(_ seed: UInt64) -> IdentityKey {
        var random = SeededGenerator(seed: seed)
        return IdentityKeyPair(random: &random).publicKey
    }

    private static let names = [
        "a", "alice", "Zoe\u{308}", "a&key=b%41=~-._", "\u{1F44D}", "me@example.org",
        String(repeating: "n", count: 255),
    ]

    @Test(arguments: names) func cardsAreReadAsTheyWereWritten(_ name: String) throws {
        for keys in [[], [1], [UInt8](repeating: 7, count: CardForm.keysLimit)] {
            let card = try CardForm(name: name, root: Self.root(1), keys: keys)
            #expect(try CardForm(card.bytes) == card)
            #expect(card.bytes.count <= CardForm.fileLimit)
            let short = try CardForm(name: name, root: Self.root(1))
            #expect(try CardForm(uri: card.uri) == short)
            #expect(card.uri.utf8.count <= CardForm.uriLimit)
        }
    }

    @Test func namesAndKeysHaveBounds() {
        let root = Self.root(1)
        for name in ["", String(repeating: "n", count: 256), "a\nb", "\u{0}"] {
            #expect(throws: EnvelopeError.malformed) { try CardForm(name: name, root: root) }
        }
        #expect(throws: EnvelopeError.malformed) {
            try CardForm(name: "a", root: root, keys: [UInt8](repeating: 0, count: CardForm.keysLimit + 1))
        }
    }

    /// Links with parameters in another order, in another case, or with others are no cards.
    @Test func eachCardHasOneURI() throws {
        let uri = try CardForm(name: "b\u{F6}b +", root: Self.root(2)).uri
        #expect(uri.hasPrefix("pawl:contact?name=b%C3%B6b%20%2B&key="))
        for other in [
            uri.replacing("%C3", with: "%c3"), uri.replacing("%20", with: "+"), uri.replacing("%20", with: " "),
            uri.replacing("b%C3", with: "%62%C3"), uri.replacing("pawl:", with: "PAWL:"), uri + "&", uri + "\n",
            " " + uri, uri + "=", uri.replacing("&key", with: "&Key"), uri.replacing("%B6", with: "%B"),
            uri.replacing("%C3", with: ""), uri.replacing("contact", with: "/contact"), "",
            "pawl:contact?name=&key=&sum=", uri + uri,
        ] {
            #expect(throws: EnvelopeError.malformed, "\(other)") { try CardForm(uri: other) }
        }
        #expect(throws: EnvelopeError.malformed) {
            try CardForm(uri: "pawl:contact?name=" + String(repeating: "%41", count: 100_000))
        }
    }

    @Test func noCutOrAlteredURIIsRead() throws {
        let card = try CardForm(name: "bob", root: Self.root(3))
        for count in 0..<card.uri.utf8.count {
            #expect(throws: EnvelopeError.malformed) { try CardForm(uri: String(card.uri.prefix(count))) }
        }
        // The digest has 48 bits, and the form is one.
        var random = SeededGenerator(seed: 4)
        let alphabet = Array("ABCXYZabcxyz0189-_+/=&%?.~ \u{F6}")
        for place in 0..<card.uri.count {
            for _ in 0..<20 {
                var characters = Array(card.uri)
                characters[place] = try #require(alphabet.randomElement(using: &random))
                guard String(characters) != card.uri else { continue }
                #expect(throws: EnvelopeError.malformed) { try CardForm(uri: String(characters)) }
            }
        }
    }

    @Test func noCutOrAlteredFileIsRead() throws {
        let card = try CardForm(name: "bob", root: Self.root(5), keys: [1, 2, 3, 4])
        for count in 0..<card.bytes.count {
            #expect(throws: EnvelopeError.malformed) { try CardForm(Array(card.bytes.prefix(count))) }
        }
        #expect(throws: EnvelopeError.malformed) { try CardForm(card.bytes + [0]) }
        #expect(throws: EnvelopeError.malformed) { try CardForm([0] + card.bytes) }
        #expect(throws: EnvelopeError.malformed) {
            try CardForm(card.bytes + [UInt8](repeating: 0, count: CardForm.fileLimit))
        }
        for place in card.bytes.indices {
            var bytes = card.bytes
            bytes[place] ^= 0x41
            #expect(throws: EnvelopeError.self) { try CardForm(bytes) }
        }
        var later = card.bytes
        later[8] = 2
        #expect(throws: EnvelopeError.unsupportedVersion(2)) { try CardForm(later) }
    }

    /// What is read is written as it was read.
    @Test func randomCardsNeverEndTheProcess() throws {
        var random = SeededGenerator(seed: 6)
        let pieces = [
            "pawl:contact?name=", "&key=", "&sum=", "%", "A", "%C3", "%B6", "\u{F6}", String(repeating: "A", count: 43),
        ]
        for _ in 0..<3000 {
            let text = (0..<Int.random(in: 0..<10, using: &random)).map { _ in pieces.randomElement(using: &random)! }
                .joined()
            if let card = try? CardForm(uri: text) { #expect(card.uri == text) }
            var bytes = Array("PAWLCARD".utf8) + [1]
            bytes += (0..<Int.random(in: 0..<120, using: &random)).map { _ in UInt8.random(in: 0...3, using: &random) }
            if let card = try? CardForm(bytes) { #expect(card.bytes == bytes) }
        }
    }
}
