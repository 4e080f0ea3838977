/// What a document may be at most. RFC 8259 section 9 lets an implementation set such limits; whoever reads documents
/// of strangers has to.
package struct JSONLimits: Equatable, Sendable {
    /// Bytes of the whole document. Ours: room for a first synchronisation of a large account.
    package var size = 16 << 20
    /// Arrays and objects that stand in each other. Ours: no chat protocol comes near.
    package var depth = 128
    /// Members of one object, or elements of one array. Ours: one array of events stays below.
    package var members = 1 << 16
    /// Values in all, names of members not counted. Ours: an entry of the index is 16 bytes for a value that may be
    /// two bytes long, so this bounds the index, with one name a value, to 32 MiB.
    package var values = 1 << 20
    /// Bytes of one string as it is written, without its quotes. Ours: a picture in Base64, of 3 MiB.
    package var stringLength = 4 << 20
    /// Bytes of one number. Ours: a double written out in full has 1,077 digits.
    package var numberLength = 1100

    /// What the gateway uses where nothing else is configured.
    package static let standard = JSONLimits()

    /// Offsets are 32 bits wide: what ``size`` cannot exceed, whatever it says. In bytes.
    static let largestSize = Int(Int32.max)
    /// Counts are 24 bits wide: what ``members`` cannot exceed.
    static let largestCount = 1 << 24 - 1

    package init() {}

    /// Limits for documents of at most `size` bytes. The number of values grows with it: a synchronisation has one in 24 bytes.
    package init(size: Int) {
        self.size = size
        values = max(values, size / 16)
    }
}
