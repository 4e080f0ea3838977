/// The field `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date in one of three forms (section 5.6.7).
public enum RetryAfter {
    /// Milliseconds from `now`, never negative.
    ///
    /// - Parameters:
    ///   - field: the value of the field.
    ///   - now: milliseconds since 1970.
    /// - Returns: nil if the field is neither.
    public static func milliseconds(_ field: String, now: Int64) -> Int64? {
        let text = field.drop { $0 == " " || $0 == "\t" }
        guard let first = text.utf8.first else { return nil }
        if (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first) {
            let digits = text.reversed().drop { $0 == " " || $0 == "\t" }.reversed()
            guard digits.allSatisfy({ $0.isASCII && $0.isNumber }) else { return nil }
            // A number that overflows is a long time, not a missing field.
            guard let seconds = Int64(String(digits)) else { return .max }
            let (milliseconds, overflow) = seconds.multipliedReportingOverflow(by: 1000)
            return overflow ? .max : milliseconds
        }
        return HTTPDate.seconds(String(text)).map { max(($0 * 1000).adding(-max(now, 0)), 0) }
    }
}

/// The date formats of HTTP (RFC 9110 section 5.6.7).
enum HTTPDate {
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// Seconds since 1970.
    static func seconds(_ text: String) -> Int64? {
        // The name of the day adds nothing to the date and is not checked.
        let words = text.split { $0 == " " || $0 == "," }.dropFirst().map(String.init)
        switch words.count {
        case 5:  // Sun, 06 Nov 1994 08:49:37 GMT
            guard words[4] == "GMT", words[2].count == 4 else { return nil }
            return seconds(day: words[0], month: words[1], year: Int(words[2]), time: words[3])
        case 3:  // Sunday, 06-Nov-94 08:49:37 GMT
            let date = words[0].split(separator: "-").map(String.init)
            guard words[2] == "GMT", date.count == 3, date[2].count == 2, let year = Int(date[2]) else { return nil }
            // Two digits mean 1970 to 2069: about the 50 years ahead that RFC 9110 allows.
            return seconds(day: date[0], month: date[1], year: year < 70 ? 2000 + year : 1900 + year, time: words[1])
        case 4:  // Sun Nov  6 08:49:37 1994
            return seconds(day: words[1], month: words[0], year: Int(words[3]), time: words[2])
        default: return nil
        }
    }

    private static func seconds(day: String, month: String, year: Int?, time: String) -> Int64? {
        let clock = time.split(separator: ":", omittingEmptySubsequences: false).compactMap { Int($0) }
        guard let day = Int(day), let index = months.firstIndex(of: month), let year, (1970...9999).contains(year),
            (1...31).contains(day), clock.count == 3, (0...23).contains(clock[0]), (0...59).contains(clock[1]),
            (0...60).contains(clock[2])
        else { return nil }
        return Int64(days(year: year, month: index + 1, day: day)) * 86400
            + Int64(clock[0] * 3600 + clock[1] * 60 + clock[2])
    }

    /// Days since 1970-01-01 of the Gregorian calendar. Years begin in March here, so that the leap day is the last
    /// day.
    private static func days(year: Int, month: Int, day: Int) -> Int {
        let shifted = month > 2 ? year : year - 1
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + dayOfYear - 719_468
    }
}
