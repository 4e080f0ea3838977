import IRCCodec
import Testing

/// The mark of a sidecar behind its first plaintext.
@Suite struct AnnouncementTests {
    @Test func theMarkIsFormattingWithoutText() {
        // White space and unknown control codes would be shown by some clients.
        #expect(Announcement.marker.allSatisfy { [0x02, 0x1F, 0x0F].contains($0) })
        // ngIRCd removes white space from the end of a line.
        #expect(Announcement.marker.last == 0x0F)
        for code in [UInt8(0x02), 0x1F] { #expect(Announcement.marker.count { $0 == code }.isMultiple(of: 2)) }
    }

    @Test func allFormsOfItAreRead() {
        let text = Array("hello\u{2} you".utf8)
        for mark in [Announcement.marker, Announcement.earlierMarker, Announcement.earlierMarker.dropLast()] {
            #expect(Announcement.stripped(text + mark) == text)
            #expect(Announcement.stripped(mark + text) == nil)
        }
        #expect(Announcement.stripped(Announcement.marker) == nil)
        #expect(Announcement.stripped(text) == nil)
    }
}
