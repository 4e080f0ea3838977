import Devices
import DoubleRatchet
import QRCode
import TestKit
import TestThreads
import Testing

/// The URI of a contact card as a QR code, as zbar reads it.
@Suite(.blocking) struct CardTests {
    @Test(arguments: ["a", "alice", "b\u{F6}b \u{1F44D}", "someone.with.a.long.name@mail.example.org"])
    func aCardIsReadBackFromItsCode(_ name: String) throws {
        var random = SeededGenerator(seed: UInt64(name.utf8.count))
        let card = try CardForm(name: name, root: IdentityKeyPair(random: &random).publicKey)
        let code = try #require(QRCode(Array(card.uri.utf8)))
        let read = try #require(try DecodingTests.picture(code).decoded())
        let text = String(decoding: read, as: UTF8.self)
        #expect(text == card.uri)
        #expect(try CardForm(uri: text) == card)
    }

    /// 80 columns and 24 rows, one of them for the prompt.
    @Test(arguments: [1, 5, 9, 16, 27]) func theCodeOfANickFitsASmallTerminal(_ length: Int) throws {
        var random = SeededGenerator(seed: UInt64(length))
        let card = try CardForm(
            name: String(repeating: "n", count: length), root: IdentityKeyPair(random: &random).publicKey)
        let code = try #require(QRCode(Array(card.uri.utf8)))
        let quietZone = code.quietZone(fitting: 23)
        let lines = code.plain(quietZone: quietZone).split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines.count <= 23 && lines.allSatisfy { $0.count <= 80 })
        #expect(quietZone >= QRCode.narrowQuietZone)
        #expect(try DecodingTests.picture(lines, ink: false).decoded() == Array(card.uri.utf8))
    }

    @Test func theLineOfThePageCompiles() throws {
        let uri = "pawl:contact"
        let code = QRCode(Array(uri.utf8))
        #expect(code?.size == 21)
        let examples = try Catalogue(of: "QRCode", file: #filePath).missing(in: "Tests/QRCodeTests/CardTests.swift")
        #expect(examples.blocks.isEmpty && examples.count == 1, "\(examples)")
    }

    /// A longer name has a link and a file, and no code.
    @Test func theLongestNameOfLettersIsNamed() throws {
        var random = SeededGenerator(seed: 1)
        let root = IdentityKeyPair(random: &random).publicKey
        let longest = try CardForm(name: String(repeating: "n", count: 134), root: root)
        #expect(longest.uri.utf8.count == QRCode.capacity)
        #expect(QRCode(Array(longest.uri.utf8)) != nil)
        let longer = try CardForm(name: String(repeating: "n", count: 135), root: root)
        #expect(QRCode(Array(longer.uri.utf8)) == nil)
    }
}
