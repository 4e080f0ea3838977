import Envelope
import TestKit
import Testing

@testable import PawlMessenger

/// Frames of a plaintext channel, in both formats.
@Suite struct ChannelFrameTests {
    static let frames: [ChannelFrame] = [
        .message(to: DeviceID(1), MessageID(2), [1, 2, 3]), .message(to: DeviceID(.max), MessageID(.max), []),
        .keys([9, 8], asksForKeys: false), .keys([], asksForKeys: true),
    ]

    @Test(arguments: frames) func framesAreReadAsTheyWereWritten(_ frame: ChannelFrame) throws {
        #expect(try ChannelFrame(frame.bytes) == frame)
        #expect(ChannelFrame.parse(frame.text) == .frame(frame))
        #expect(ChannelFrame.parse(marked: frame.markedText) == .frame(frame))
    }

    @Test func cutAndLongFramesAreRefused() {
        for frame in Self.frames {
            for length in 0..<6 {
                #expect(throws: EnvelopeError.self) { try ChannelFrame(Array(frame.bytes.prefix(length))) }
            }
        }
        let long = ChannelFrame.keys([UInt8](repeating: 0, count: ChannelFrame.maximumLength), asksForKeys: false)
        #expect(throws: EnvelopeError.malformed) { try ChannelFrame(long.bytes) }
        #expect(ChannelFrame.parse(long.text) == .damaged && ChannelFrame.parse(marked: long.markedText) == .damaged)
        #expect(throws: EnvelopeError.unsupportedVersion(2)) { try ChannelFrame(Array("pawl".utf8) + [2, 1]) }
        #expect(throws: EnvelopeError.unsupportedKind(7)) { try ChannelFrame(Array("pawl".utf8) + [1, 7]) }
    }

    @Test func textsOfPeopleStayTexts() {
        let sentence = "cGF3b, he said, and this is a long sentence that begins so"
        for text in ["", "hello", "cGF3b", sentence, "?PAW", "pawl"] {
            #expect(ChannelFrame.parse(text) == .text(text, hasHint: false))
            #expect(ChannelFrame.parse(marked: text) == .text(text, hasHint: false))
        }
        #expect(ChannelFrame.parse(marked: "hello" + ChannelFrame.hint) == .text("hello", hasHint: true))
        #expect(ChannelFrame.parse(marked: ChannelFrame.hint) == .text("", hasHint: true))
        for text in ["?PAWL", "?PAWL:", "?PAWL:AA", "?PAWL:!!.", "?PAWL? words"] {
            #expect(ChannelFrame.parse(marked: text) == .damaged)
        }
    }

    @Test func randomTextsNeverEndTheProcess() {
        var random = SeededGenerator(seed: 31)
        for frame in Self.frames {
            for text in [frame.text, frame.markedText] {
                for _ in 0..<500 {
                    var bytes = Array(text.utf8)
                    for _ in 0..<Int.random(in: 1...3, using: &random) {
                        bytes[Int.random(in: 0..<bytes.count, using: &random)] =
                            UInt8.random(in: 0x20...0x7E, using: &random)
                    }
                    let changed = String(decoding: bytes, as: UTF8.self)
                    if case .frame(let read) = ChannelFrame.parse(changed) { #expect(read.text == changed) }
                    if case .frame(let read) = ChannelFrame.parse(marked: changed) {
                        #expect(read.markedText == changed)
                    }
                }
            }
        }
    }
}
