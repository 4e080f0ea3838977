/// The limits of a document. RFC 8259 section 9 allows them; a program that reads untrusted documents needs them.
package struct JSONLimits: Equatable, Sendable {
    /// Bytes of the whole document. Ours: enough for a first synchronisation of a large account.
    package var size = 16 << 20
    /// Nesting depth of arrays and objects. Ours: no chat protocol comes near.
    package var depth = 128
    /// Members of one object, or elements of one array. Ours: an array of events stays below.
    package var members = 1 << 16
    /// All values, not counting names of members. Ours: an index entry is 16 bytes for a value that may be two bytes
    /// long, so this limits the index, with one name for each value, to 32 MiB.
    package var values = 1 << 20
    /// Bytes of one string as written, without its quotes. Ours: a picture of 3 MiB in Base64.
    package var stringLength = 4 << 20
    /// Bytes of one number. Ours: a double written out in full has 1,077 digits.
    package var numberLength = 1100

    /// The limits that apply if no others are configured.
    package static let standard = JSONLimits()

    /// The upper bound of ``size``, whatever its value: offsets are 32 bits wide. In bytes.
    static let largestSize = Int(Int32.max)
    /// The upper bound of ``members``, whatever its value: counts are 24 bits wide.
    static let largestCount = 1 << 24 - 1

    package init() {}

    /// Limits for documents of at most `size` bytes. The limit of values grows with it: a synchronisation has about one
    /// value in 24 bytes.
    package init(size: Int) {
        self.size = size
        values = max(values, size / 16)
    }
}
